#include "layout/pipeline_schedule.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.hpp"

namespace plimsoll
{
namespace
{

bool is_send(ActionKind kind)
{
    return kind == ActionKind::send_activation || kind == ActionKind::send_gradient;
}

bool is_receive(ActionKind kind)
{
    return kind == ActionKind::recv_activation || kind == ActionKind::recv_gradient;
}

std::string text_of(const Action& action)
{
    return fmt::format("{} of micro-batch {}{}", action_kind_name(action.kind), action.micro_batch,
                       action.chunk == 0 ? "" : fmt::format(" chunk {}", action.chunk));
}

/// A message between two stages: what it is and for which virtual stage.
using Message = std::tuple<ActionKind, std::int64_t, std::int64_t>;
using Channel = std::pair<std::int64_t, std::int64_t>;

class Verifier
{
  public:
    explicit Verifier(const PipelineSchedule& schedule)
        : schedule_(schedule), num_stages_(static_cast<std::int64_t>(schedule.stages.size()))
    {
        places_.resize(schedule.stages.size());
        for (std::size_t stage = 0; stage < schedule.stages.size(); ++stage)
        {
            for (std::size_t i = 0; i < schedule.stages[stage].size(); ++i)
            {
                const Action& action = schedule.stages[stage][i];
                num_chunks_ = std::max(num_chunks_, action.chunk + 1);
                places_[stage][{action.kind, action.micro_batch, action.chunk}].push_back(static_cast<std::int64_t>(i));
            }
        }
    }

    std::vector<std::string> faults()
    {
        if (num_stages_ == 0 || schedule_.num_micro_batches < 1)
        {
            faults_.push_back(fmt::format("schedule has {} stages and {} micro-batches (both must be at least 1)", num_stages_,
                                          schedule_.num_micro_batches));
            return faults_;
        }
        for (std::int64_t stage = 0; stage < num_stages_; ++stage) { check_ranges(stage); }
        if (!faults_.empty()) { return faults_; }  // a wild number would flood what follows
        for (std::int64_t stage = 0; stage < num_stages_; ++stage)
        {
            for (std::int64_t chunk = 0; chunk < num_chunks_; ++chunk)
            {
                for (std::int64_t m = 0; m < schedule_.num_micro_batches; ++m) { check_micro_batch(stage, m, chunk); }
            }
        }
        // Missing or superfluous transfers block by themselves: only matched ones say something about order.
        if (faults_.empty()) { check_channels(); }
        if (faults_.empty()) { check_deadlock(); }
        return faults_;
    }

  private:
    const std::vector<Action>& actions(std::int64_t stage) const { return schedule_.stages[static_cast<std::size_t>(stage)]; }

    void check_ranges(std::int64_t stage)
    {
        for (const Action& action : actions(stage))
        {
            if (action.micro_batch < 0 || action.micro_batch >= schedule_.num_micro_batches || action.chunk < 0)
            {
                faults_.push_back(fmt::format("stage {}: {} does not exist ({} micro-batches)", stage, text_of(action),
                                              schedule_.num_micro_batches));
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
            faults_.push_back(fmt::format("stage {}: {} stands {} times", stage, text_of(wanted), found->second.size()));
        }
        return found->second.front();
    }

    std::int64_t require(std::int64_t stage, const Action& wanted)
    {
        const std::int64_t found = find(stage, wanted);
        if (found < 0) { faults_.push_back(fmt::format("stage {}: {} is missing", stage, text_of(wanted))); }
        return found;
    }

    void require_order(std::int64_t stage, const Action& first, std::int64_t first_at, const Action& second,
                       std::int64_t second_at)
    {
        if (first_at >= 0 && second_at >= 0 && first_at > second_at)
        {
            faults_.push_back(fmt::format("stage {}: {} stands before {}", stage, text_of(second), text_of(first)));
        }
    }

    /// A transfer that the place in the pipeline needs (in order with `compute`) or must not have.
    void check_transfer(std::int64_t stage, const Action& transfer, bool needed, const Action& compute, std::int64_t compute_at)
    {
        if (!needed)
        {
            if (find(stage, transfer) >= 0)
            {
                faults_.push_back(fmt::format("stage {}: {} has no partner stage", stage, text_of(transfer)));
            }
            return;
        }
        const std::int64_t at = require(stage, transfer);
        if (is_receive(transfer.kind)) { require_order(stage, transfer, at, compute, compute_at); }
        else { require_order(stage, compute, compute_at, transfer, at); }
    }

    void check_micro_batch(std::int64_t stage, std::int64_t m, std::int64_t chunk)
    {
        const Action forward{ActionKind::forward, m, chunk};
        const Action whole{ActionKind::backward, m, chunk};
        const Action input{ActionKind::backward_input, m, chunk};
        const Action weight{ActionKind::backward_weight, m, chunk};
        const std::int64_t forward_at = require(stage, forward);
        const std::int64_t whole_at = find(stage, whole);
        const Action& backward = whole_at >= 0 ? whole : input;
        const std::int64_t backward_at = whole_at >= 0 ? whole_at : require(stage, input);
        require_order(stage, forward, forward_at, backward, backward_at);
        if (whole_at < 0) { require_order(stage, input, backward_at, weight, require(stage, weight)); }
        else
        {
            for (const Action& half : {input, weight})
            {
                if (find(stage, half) >= 0)
                {
                    faults_.push_back(fmt::format("stage {}: {} stands beside its backward", stage, text_of(half)));
                }
            }
        }
        const std::int64_t virtual_stage = chunk * num_stages_ + stage;
        const bool transfers = num_stages_ > 1;
        const bool has_previous = transfers && virtual_stage > 0;
        const bool has_next = transfers && virtual_stage + 1 < num_stages_ * num_chunks_;
        check_transfer(stage, {ActionKind::recv_activation, m, chunk}, has_previous, forward, forward_at);
        check_transfer(stage, {ActionKind::send_activation, m, chunk}, has_next, forward, forward_at);
        check_transfer(stage, {ActionKind::recv_gradient, m, chunk}, has_next, backward, backward_at);
        check_transfer(stage, {ActionKind::send_gradient, m, chunk}, has_previous, backward, backward_at);
    }

    /// Channel and message of a transfer: a message is named by its kind of send, its micro-batch and the sender's virtual stage.
    std::pair<Channel, Message> message_of(std::int64_t stage, const Action& action) const
    {
        const std::int64_t here = action.chunk * num_stages_ + stage;
        const bool activation = action.kind == ActionKind::send_activation || action.kind == ActionKind::recv_activation;
        const std::int64_t sender = is_send(action.kind) ? here : activation ? here - 1 : here + 1;
        const std::int64_t receiver = activation ? sender + 1 : sender - 1;
        return {{sender % num_stages_, receiver % num_stages_},
                {activation ? ActionKind::send_activation : ActionKind::send_gradient, action.micro_batch, sender}};
    }

    void check_channels()
    {
        std::map<Channel, std::vector<Message>> sent;
        std::map<Channel, std::vector<std::pair<Message, Action>>> received;
        for (std::int64_t stage = 0; stage < num_stages_; ++stage)
        {
            for (const Action& action : actions(stage))
            {
                if (is_send(action.kind))
                {
                    const auto message = message_of(stage, action);
                    sent[message.first].push_back(message.second);
                }
                else if (is_receive(action.kind))
                {
                    const auto message = message_of(stage, action);
                    received[message.first].push_back({message.second, action});
                }
            }
        }
        for (const auto& channel : received)
        {
            const auto& messages = sent[channel.first];
            for (std::size_t i = 0; i < channel.second.size(); ++i)
            {
                if (i < messages.size() && messages[i] == channel.second[i].first) { continue; }
                faults_.push_back(fmt::format("stage {}: {} is not the next message that stage {} sends", channel.first.second,
                                              text_of(channel.second[i].second), channel.first.first));
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
                std::size_t& at = next[static_cast<std::size_t>(stage)];
                for (; at < actions(stage).size(); ++at, moved = true)
                {
                    const Action& action = actions(stage)[at];
                    if (!is_send(action.kind) && !is_receive(action.kind)) { continue; }
                    std::int64_t& messages = under_way[message_of(stage, action).first];
                    if (is_receive(action.kind) && messages == 0) { break; }
                    messages += is_send(action.kind) ? 1 : -1;
                }
            }
        }
        for (std::int64_t stage = 0; stage < num_stages_; ++stage)
        {
            const std::size_t at = next[static_cast<std::size_t>(stage)];
            if (at == actions(stage).size()) { continue; }
            faults_.push_back(fmt::format("stage {}: {} waits for ever (deadlock)", stage, text_of(actions(stage)[at])));
        }
    }

    const PipelineSchedule& schedule_;
    std::int64_t num_stages_;
    std::int64_t num_chunks_ = 1;
    /// Per stage: positions of each (kind, micro-batch, chunk).
    std::vector<std::map<std::tuple<ActionKind, std::int64_t, std::int64_t>, std::vector<std::int64_t>>> places_;
    std::vector<std::string> faults_;
};

}  // namespace

const char* action_kind_name(ActionKind kind)
{
    switch (kind)
    {
        case ActionKind::forward: return "forward";
        case ActionKind::backward: return "backward";
        case ActionKind::backward_input: return "backward_input";
        case ActionKind::backward_weight: return "backward_weight";
        case ActionKind::send_activation: return "send_activation";
        case ActionKind::recv_activation: return "recv_activation";
        case ActionKind::send_gradient: return "send_gradient";
        case ActionKind::recv_gradient: return "recv_gradient";
    }
    return "unknown action";
}

PipelineSchedule make_single_stage_schedule(std::int64_t num_micro_batches)
{
    EXPECT(num_micro_batches >= 1);
    PipelineSchedule schedule;
    schedule.name = "single";
    schedule.num_micro_batches = num_micro_batches;
    schedule.stages.resize(1);
    for (std::int64_t m = 0; m < num_micro_batches; ++m)
    {
        schedule.stages[0].push_back({ActionKind::forward, m, 0});
        schedule.stages[0].push_back({ActionKind::backward, m, 0});
    }
    return schedule;
}

PipelineSchedule make_1f1b_schedule(std::int64_t num_stages, std::int64_t num_micro_batches)
{
    EXPECT(num_stages >= 1 && num_micro_batches >= 1);
    if (num_stages == 1) { return make_single_stage_schedule(num_micro_batches); }
    PipelineSchedule schedule;
    schedule.name = "1f1b";
    schedule.num_micro_batches = num_micro_batches;
    for (std::int64_t stage = 0; stage < num_stages; ++stage)
    {
        std::vector<Action> actions;
        const bool first = stage == 0, last = stage == num_stages - 1;
        const auto forward = [&](std::int64_t m)
        {
            if (!first) { actions.push_back({ActionKind::recv_activation, m, 0}); }
            actions.push_back({ActionKind::forward, m, 0});
            if (!last) { actions.push_back({ActionKind::send_activation, m, 0}); }
        };
        const auto backward = [&](std::int64_t m)
        {
            if (!last) { actions.push_back({ActionKind::recv_gradient, m, 0}); }
            actions.push_back({ActionKind::backward, m, 0});
            if (!first) { actions.push_back({ActionKind::send_gradient, m, 0}); }
        };
        const std::int64_t ahead = std::min(num_stages - stage - 1, num_micro_batches);
        for (std::int64_t m = 0; m < ahead; ++m) { forward(m); }
        for (std::int64_t m = 0; m < num_micro_batches; ++m)
        {
            if (m + ahead < num_micro_batches) { forward(m + ahead); }
            backward(m);
        }
        schedule.stages.push_back(std::move(actions));
    }
    return schedule;
}

std::vector<std::string> verify_schedule(const PipelineSchedule& schedule)
{
    return Verifier(schedule).faults();
}

std::int64_t max_in_flight(const PipelineSchedule& schedule, std::int64_t stage)
{
    EXPECT(stage >= 0 && stage < static_cast<std::int64_t>(schedule.stages.size()));
    std::set<std::pair<std::int64_t, std::int64_t>> in_flight;
    std::size_t most = 0;
    for (const Action& action : schedule.stages[static_cast<std::size_t>(stage)])
    {
        const std::pair<std::int64_t, std::int64_t> key(action.micro_batch, action.chunk);
        if (action.kind == ActionKind::forward) { in_flight.insert(key); }
        if (action.kind == ActionKind::backward || action.kind == ActionKind::backward_weight) { in_flight.erase(key); }
        most = std::max(most, in_flight.size());
    }
    return static_cast<std::int64_t>(most);
}

}  // namespace plimsoll
