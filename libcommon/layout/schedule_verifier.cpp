#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "layout/pipeline_schedule.hpp"

namespace plimsoll
{
namespace
{

using Channel = std::pair<std::int64_t, std::int64_t>;  ///< from stage, to stage

class Verifier
{
  public:
    explicit Verifier(const PipelineSchedule& schedule) : schedule_(schedule), num_stages_(schedule.num_stages())
    {
        places_.resize(schedule.stages.size());
        for (std::size_t stage = 0; stage < schedule.stages.size(); ++stage)
        {
            for (std::size_t i = 0; i < schedule.stages[stage].size(); ++i)
            {
                const Action& action = schedule.stages[stage][i];
                places_[stage][{action.kind, action.micro_batch, action.chunk}].push_back(static_cast<std::int64_t>(i));
            }
        }
    }

    std::vector<std::string> faults()
    {
        if (!check_shape()) { return faults_; }
        for (std::int64_t stage = 0; stage < num_stages_; ++stage) { check_ranges(stage); }
        if (!faults_.empty()) { return faults_; }  // a wild number would flood what follows
        for (std::int64_t stage = 0; stage < num_stages_; ++stage)
        {
            for (std::int64_t chunk = 0; chunk < schedule_.num_chunks; ++chunk)
            {
                for (std::int64_t m = 0; m < schedule_.num_micro_batches; ++m) { check_micro_batch(stage, m, chunk); }
            }
        }
        // Missing or superfluous transfers block by themselves: only matched ones say something about order.
        if (faults_.empty()) { check_channels(); }
        if (faults_.empty()) { check_deadlock(); }
        if (faults_.empty()) { check_in_flight(); }
        return faults_;
    }

  private:
    bool check_shape()
    {
        if (num_stages_ == 0 || schedule_.num_micro_batches < 1)
        {
            faults_.push_back(fmt::format("schedule has {} stages and {} micro-batches (both must be at least 1)", num_stages_,
                                          schedule_.num_micro_batches));
        }
        const bool v_shape = schedule_.placement == ChunkPlacement::v_shape;
        if (schedule_.num_chunks < 1 || (v_shape && schedule_.num_chunks != 2))
        {
            faults_.push_back(fmt::format("schedule has {} chunks per stage ({})", schedule_.num_chunks,
                                          v_shape ? "a V has 2" : "at least 1"));
        }
        const std::size_t limits = schedule_.in_flight_limit.size();
        if (limits != 0 && limits != schedule_.stages.size())
        {
            faults_.push_back(fmt::format("schedule has {} in-flight limits for {} stages", limits, num_stages_));
        }
        return faults_.empty();
    }

    void check_ranges(std::int64_t stage)
    {
        for (const Action& action : schedule_.actions(stage))
        {
            if (action.micro_batch < 0 || action.micro_batch >= schedule_.num_micro_batches || action.chunk < 0 ||
                action.chunk >= schedule_.num_chunks)
            {
                faults_.push_back(fmt::format("stage {}: {} does not exist ({} micro-batches, {} chunks)", stage,
                                              action_text(action), schedule_.num_micro_batches, schedule_.num_chunks));
            }
        }
    }

    /// First position of the action, -1 when missing; more than one is a fault.
    std::int64_t find(std::int64_t stage, const Action& wanted)
    {
        const auto& places = places_[static_cast<std::size_t>(stage)];
        const auto found = places.find({wanted.kind, wanted.micro_batch, wanted.chunk});
        if (found == places.end()) { return -1; }
        if (found->second.size() > 1)
        {
            faults_.push_back(fmt::format("stage {}: {} stands {} times", stage, action_text(wanted), found->second.size()));
        }
        return found->second.front();
    }

    std::int64_t require(std::int64_t stage, const Action& wanted)
    {
        const std::int64_t found = find(stage, wanted);
        if (found < 0) { faults_.push_back(fmt::format("stage {}: {} is missing", stage, action_text(wanted))); }
        return found;
    }

    void require_order(std::int64_t stage, const Action& first, std::int64_t first_at, const Action& second,
                       std::int64_t second_at)
    {
        if (first_at >= 0 && second_at >= 0 && first_at > second_at)
        {
            faults_.push_back(fmt::format("stage {}: {} stands before {}", stage, action_text(second), action_text(first)));
        }
    }

    /// A transfer that the place in the pipeline needs (in order with `compute`) or must not have.
    void check_transfer(std::int64_t stage, const Action& transfer, bool needed, const Action& compute, std::int64_t compute_at)
    {
        if (!needed)
        {
            if (find(stage, transfer) >= 0)
            {
                faults_.push_back(fmt::format("stage {}: {} has no partner stage", stage, action_text(transfer)));
            }
            return;
        }
        const std::int64_t at = require(stage, transfer);
        if (is_receive(transfer.kind)) { require_order(stage, transfer, at, compute, compute_at); }
        else { require_order(stage, compute, compute_at, transfer, at); }
    }

    /// Plain, or else the half that makes the gradient of the input.
    Action backward_of(std::int64_t stage, std::int64_t m, std::int64_t chunk) const
    {
        const auto& places = places_[static_cast<std::size_t>(stage)];
        const bool whole = places.count({ActionKind::backward, m, chunk}) != 0;
        return {whole ? ActionKind::backward : ActionKind::backward_input, m, chunk};
    }

    /// What a chunk hands to the next one on the same stage.
    void check_hand_over(std::int64_t stage, std::int64_t m, std::int64_t chunk, std::int64_t next_chunk)
    {
        const auto at = [&](const Action& action)
        {
            const auto& places = places_[static_cast<std::size_t>(stage)];
            const auto found = places.find({action.kind, action.micro_batch, action.chunk});
            return found == places.end() ? -1 : found->second.front();
        };
        const Action first{ActionKind::forward, m, chunk}, second{ActionKind::forward, m, next_chunk};
        require_order(stage, first, at(first), second, at(second));
        const Action back_first = backward_of(stage, m, next_chunk), back_second = backward_of(stage, m, chunk);
        require_order(stage, back_first, at(back_first), back_second, at(back_second));
    }

    void check_micro_batch(std::int64_t stage, std::int64_t m, std::int64_t chunk)
    {
        const Action forward{ActionKind::forward, m, chunk};
        const Action input{ActionKind::backward_input, m, chunk};
        const Action weight{ActionKind::backward_weight, m, chunk};
        const Action backward = backward_of(stage, m, chunk);
        const std::int64_t forward_at = require(stage, forward);
        const std::int64_t backward_at = require(stage, backward);
        require_order(stage, forward, forward_at, backward, backward_at);
        if (backward == input) { require_order(stage, input, backward_at, weight, require(stage, weight)); }
        else
        {
            for (const Action& half : {input, weight})
            {
                if (find(stage, half) >= 0)
                {
                    faults_.push_back(fmt::format("stage {}: {} stands beside its backward", stage, action_text(half)));
                }
            }
        }
        const std::int64_t here = virtual_stage(schedule_.placement, num_stages_, stage, chunk);
        const bool has_previous = is_elsewhere(here - 1, stage), has_next = is_elsewhere(here + 1, stage);
        check_transfer(stage, {ActionKind::recv_activation, m, chunk}, has_previous, forward, forward_at);
        check_transfer(stage, {ActionKind::send_activation, m, chunk}, has_next, forward, forward_at);
        check_transfer(stage, {ActionKind::recv_gradient, m, chunk}, has_next, backward, backward_at);
        check_transfer(stage, {ActionKind::send_gradient, m, chunk}, has_previous, backward, backward_at);
        const bool is_last = here + 1 == schedule_.num_virtual_stages();
        if (!is_last && !has_next)
        {
            check_hand_over(stage, m, chunk, chunk_place(schedule_.placement, num_stages_, here + 1).chunk);
        }
    }

    /// Whether the virtual stage exists and stands on another stage.
    bool is_elsewhere(std::int64_t virtual_stage, std::int64_t stage) const
    {
        return virtual_stage >= 0 && virtual_stage < schedule_.num_virtual_stages() &&
               chunk_place(schedule_.placement, num_stages_, virtual_stage).stage != stage;
    }

    void check_channels()
    {
        std::map<Channel, std::vector<PipelineMessage>> sent;
        std::map<Channel, std::vector<std::pair<PipelineMessage, Action>>> received;
        for (std::int64_t stage = 0; stage < num_stages_; ++stage)
        {
            for (const Action& action : schedule_.actions(stage))
            {
                if (!is_send(action.kind) && !is_receive(action.kind)) { continue; }
                const PipelineMessage message = message_of(schedule_, stage, action);
                const Channel channel(message.from, message.to);
                if (is_send(action.kind)) { sent[channel].push_back(message); }
                else { received[channel].push_back({message, action}); }
            }
        }
        for (const auto& channel : received)
        {
            const auto& messages = sent[channel.first];
            for (std::size_t i = 0; i < channel.second.size(); ++i)
            {
                if (i < messages.size() && messages[i] == channel.second[i].first) { continue; }
                faults_.push_back(fmt::format("stage {}: {} is not the next message that stage {} sends", channel.first.second,
                                              action_text(channel.second[i].second), channel.first.first));
                break;
            }
        }
    }

    void check_deadlock()
    {
        std::map<Channel, std::int64_t> under_way;
        std::vector<std::size_t> next(schedule_.stages.size(), 0);
        bool moved = true;
        while (moved)
        {
            moved = false;
            for (std::int64_t stage = 0; stage < num_stages_; ++stage)
            {
                const std::vector<Action>& actions = schedule_.actions(stage);
                std::size_t& at = next[static_cast<std::size_t>(stage)];
                for (; at < actions.size(); ++at, moved = true)
                {
                    const Action& action = actions[at];
                    if (!is_send(action.kind) && !is_receive(action.kind)) { continue; }
                    const PipelineMessage message = message_of(schedule_, stage, action);
                    std::int64_t& messages = under_way[{message.from, message.to}];
                    if (is_receive(action.kind) && messages == 0) { break; }
                    messages += is_send(action.kind) ? 1 : -1;
                }
            }
        }
        for (std::int64_t stage = 0; stage < num_stages_; ++stage)
        {
            const std::size_t at = next[static_cast<std::size_t>(stage)];
            if (at == schedule_.actions(stage).size()) { continue; }
            faults_.push_back(
                fmt::format("stage {}: {} waits for ever (deadlock)", stage, action_text(schedule_.actions(stage)[at])));
        }
    }

    void check_in_flight()
    {
        for (std::size_t stage = 0; stage < schedule_.in_flight_limit.size(); ++stage)
        {
            const std::int64_t most = max_in_flight(schedule_, static_cast<std::int64_t>(stage));
            if (most <= schedule_.in_flight_limit[stage]) { continue; }
            faults_.push_back(fmt::format("stage {}: {} in flight at once (schedule {} promises at most {})", stage, most,
                                          schedule_.name, schedule_.in_flight_limit[stage]));
        }
    }

    const PipelineSchedule& schedule_;
    std::int64_t num_stages_;
    /// Per stage: positions of each (kind, micro-batch, chunk).
    std::vector<std::map<std::tuple<ActionKind, std::int64_t, std::int64_t>, std::vector<std::int64_t>>> places_;
    std::vector<std::string> faults_;
};

}  // namespace

std::vector<std::string> verify_schedule(const PipelineSchedule& schedule)
{
    return Verifier(schedule).faults();
}

}  // namespace plimsoll
