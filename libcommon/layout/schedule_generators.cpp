#include "layout/schedule_generators.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.hpp"

namespace plimsoll
{
namespace
{

using Kind = ActionKind;
using Work = std::vector<Action>;  ///< forwards and backwards of one stage, without messages

/// The receive that must stand before a piece of work, or the send behind it.
struct Transfer
{
    bool needed = false;  ///< the neighbouring virtual stage exists and is on another stage
    Action action;
};
enum class Side { before, behind };

Transfer transfer_of(const PipelineSchedule& schedule, std::int64_t stage, const Action& work, Side side)
{
    Transfer transfer;
    if (work.kind == Kind::backward_weight) { return transfer; }
    const std::int64_t num_stages = schedule.num_stages();
    const bool forward = work.kind == Kind::forward;
    const std::int64_t other =
        virtual_stage(schedule.placement, num_stages, stage, work.chunk) + (forward == (side == Side::before) ? -1 : 1);
    if (other < 0 || other >= schedule.num_virtual_stages()) { return transfer; }
    transfer.needed = chunk_place(schedule.placement, num_stages, other).stage != stage;
    transfer.action = work;
    if (forward) { transfer.action.kind = side == Side::before ? Kind::recv_activation : Kind::send_activation; }
    else { transfer.action.kind = side == Side::before ? Kind::recv_gradient : Kind::send_gradient; }
    return transfer;
}

/// What `from` sends to `to`, in order.
std::vector<PipelineMessage> messages_to(const PipelineSchedule& schedule, const std::vector<Work>& work, std::int64_t from,
                                         std::int64_t to)
{
    std::vector<PipelineMessage> sent;
    for (const Action& action : work[static_cast<std::size_t>(from)])
    {
        const Transfer send = transfer_of(schedule, from, action, Side::behind);
        if (!send.needed) { continue; }
        const PipelineMessage message = message_of(schedule, from, send.action);
        if (message.to == to) { sent.push_back(message); }
    }
    return sent;
}

/// The receive of a message.
Action receive_of(const PipelineSchedule& schedule, const PipelineMessage& message)
{
    const bool activation = message.kind == Kind::send_activation;
    Action receive;
    receive.kind = activation ? Kind::recv_activation : Kind::recv_gradient;
    receive.micro_batch = message.micro_batch;
    receive.chunk = chunk_place(schedule.placement, schedule.num_stages(), message.sender + (activation ? 1 : -1)).chunk;
    return receive;
}

/// Messages from one stage that another has not received yet.
struct Incoming
{
    std::vector<PipelineMessage> messages;
    std::size_t next = 0;
};

/// Puts sends right behind the work that makes them and receives right before the work that needs them; a message that another
/// stage sent earlier is received earlier, since messages come in order.
void add_messages(PipelineSchedule& schedule, const std::vector<Work>& work)
{
    schedule.stages.assign(work.size(), {});
    for (std::int64_t stage = 0; stage < schedule.num_stages(); ++stage)
    {
        std::map<std::int64_t, Incoming> from;
        std::vector<Action>& actions = schedule.stages[static_cast<std::size_t>(stage)];
        for (const Action& action : work[static_cast<std::size_t>(stage)])
        {
            const Transfer receive = transfer_of(schedule, stage, action, Side::before);
            if (receive.needed)
            {
                const PipelineMessage wanted = message_of(schedule, stage, receive.action);
                const bool known = from.count(wanted.from) != 0;
                Incoming& incoming = from[wanted.from];
                if (!known) { incoming.messages = messages_to(schedule, work, wanted.from, stage); }
                const auto begin = incoming.messages.begin() + static_cast<std::ptrdiff_t>(incoming.next);
                const auto found = std::find(begin, incoming.messages.end(), wanted);
                // Not found: it came along with an earlier one.
                const std::ptrdiff_t count = found == incoming.messages.end() ? 0 : found - begin + 1;
                for (std::ptrdiff_t i = 0; i < count; ++i)
                {
                    actions.push_back(receive_of(schedule, incoming.messages[incoming.next++]));
                }
            }
            actions.push_back(action);
            const Transfer send = transfer_of(schedule, stage, action, Side::behind);
            if (send.needed) { actions.push_back(send.action); }
        }
    }
}

PipelineSchedule begin(PipelineKind kind, std::int64_t num_stages, std::int64_t num_micro_batches, std::int64_t num_chunks)
{
    EXPECT(num_stages >= 1 && num_micro_batches >= 1 && num_chunks >= 1);
    PipelineSchedule schedule;
    schedule.name = pipeline_kind_name(kind);
    schedule.num_micro_batches = num_micro_batches;
    schedule.num_chunks = num_chunks;
    schedule.placement = placement_of(kind);
    schedule.stages.resize(static_cast<std::size_t>(num_stages));
    return schedule;
}

void require(bool condition, const char* rule)
{
    if (!condition) { throw InternalError(rule); }
}

}  // namespace

const char* pipeline_kind_name(PipelineKind kind)
{
    switch (kind)
    {
        case PipelineKind::one_f_one_b: return "1f1b";
        case PipelineKind::gpipe: return "gpipe";
        case PipelineKind::interleaved: return "interleaved";
        case PipelineKind::zb_h1: return "zb-h1";
        case PipelineKind::zbv: return "zbv";
    }
    return "unknown schedule";
}

std::vector<std::string> pipeline_kind_names()
{
    std::vector<std::string> names;
    for (int kind = 0; kind < num_pipeline_kinds; ++kind)
    {
        names.push_back(pipeline_kind_name(static_cast<PipelineKind>(kind)));
    }
    return names;
}

PipelineKind parse_pipeline_kind(const std::string& name)
{
    for (int kind = 0; kind < num_pipeline_kinds; ++kind)
    {
        if (name == pipeline_kind_name(static_cast<PipelineKind>(kind))) { return static_cast<PipelineKind>(kind); }
    }
    throw ConfigError(fmt::format("schedule '{}' is not known (known: {})", name, fmt::join(pipeline_kind_names(), " ")));
}

ChunkPlacement placement_of(PipelineKind kind)
{
    return kind == PipelineKind::zbv ? ChunkPlacement::v_shape : ChunkPlacement::round_robin;
}

std::int64_t default_num_chunks(PipelineKind kind)
{
    return kind == PipelineKind::interleaved || kind == PipelineKind::zbv ? 2 : 1;
}

PipelineSchedule make_single_stage_schedule(std::int64_t num_micro_batches)
{
    EXPECT(num_micro_batches >= 1);
    PipelineSchedule schedule;
    schedule.name = "single";
    schedule.num_micro_batches = num_micro_batches;
    schedule.in_flight_limit = {1};
    schedule.stages.resize(1);
    for (std::int64_t m = 0; m < num_micro_batches; ++m)
    {
        schedule.stages[0].push_back({Kind::forward, m, 0});
        schedule.stages[0].push_back({Kind::backward, m, 0});
    }
    return schedule;
}

PipelineSchedule make_gpipe_schedule(std::int64_t num_stages, std::int64_t num_micro_batches)
{
    PipelineSchedule schedule = begin(PipelineKind::gpipe, num_stages, num_micro_batches, 1);
    Work work;
    for (const Kind kind : {Kind::forward, Kind::backward})
    {
        for (std::int64_t m = 0; m < num_micro_batches; ++m) { work.push_back({kind, m, 0}); }
    }
    schedule.in_flight_limit.assign(static_cast<std::size_t>(num_stages), num_micro_batches);
    add_messages(schedule, std::vector<Work>(static_cast<std::size_t>(num_stages), work));
    return schedule;
}

PipelineSchedule make_1f1b_schedule(std::int64_t num_stages, std::int64_t num_micro_batches)
{
    if (num_stages == 1) { return make_single_stage_schedule(num_micro_batches); }
    PipelineSchedule schedule = begin(PipelineKind::one_f_one_b, num_stages, num_micro_batches, 1);
    std::vector<Work> all;
    for (std::int64_t stage = 0; stage < num_stages; ++stage)
    {
        const std::int64_t ahead = std::min(num_stages - stage - 1, num_micro_batches);
        Work work;
        for (std::int64_t m = 0; m < ahead; ++m) { work.push_back({Kind::forward, m, 0}); }
        for (std::int64_t m = 0; m < num_micro_batches; ++m)
        {
            if (m + ahead < num_micro_batches) { work.push_back({Kind::forward, m + ahead, 0}); }
            work.push_back({Kind::backward, m, 0});
        }
        all.push_back(std::move(work));
        schedule.in_flight_limit.push_back(std::min(num_micro_batches, num_stages - stage));
    }
    add_messages(schedule, all);
    return schedule;
}

PipelineSchedule make_interleaved_schedule(std::int64_t num_stages, std::int64_t num_micro_batches, std::int64_t num_chunks)
{
    PipelineSchedule schedule = begin(PipelineKind::interleaved, num_stages, num_micro_batches, num_chunks);
    require(num_micro_batches % num_stages == 0, "an interleaved schedule needs whole groups of as many micro-batches as stages");
    const std::int64_t total = num_micro_batches * num_chunks;
    // The k-th forward of every stage; backward takes the chunks in reverse.
    const auto nth = [&](Kind kind, std::int64_t k)
    {
        const std::int64_t in_round = k % (num_stages * num_chunks), round = k / (num_stages * num_chunks);
        const std::int64_t chunk = in_round / num_stages;
        return Action{kind, round * num_stages + in_round % num_stages,
                      kind == Kind::forward ? chunk : num_chunks - 1 - chunk};
    };
    std::vector<Work> all;
    for (std::int64_t stage = 0; stage < num_stages; ++stage)
    {
        const std::int64_t ahead = std::min(2 * (num_stages - stage - 1) + (num_chunks - 1) * num_stages, total);
        Work work;
        for (std::int64_t k = 0; k < ahead; ++k) { work.push_back(nth(Kind::forward, k)); }
        for (std::int64_t k = 0; k < total; ++k)
        {
            if (k + ahead < total) { work.push_back(nth(Kind::forward, k + ahead)); }
            work.push_back(nth(Kind::backward, k));
        }
        all.push_back(std::move(work));
        schedule.in_flight_limit.push_back(std::min(total, ahead + 1));
    }
    add_messages(schedule, all);
    return schedule;
}

PipelineSchedule make_zb_h1_schedule(std::int64_t num_stages, std::int64_t num_micro_batches)
{
    PipelineSchedule schedule = begin(PipelineKind::zb_h1, num_stages, num_micro_batches, 1);
    std::vector<Work> all;
    for (std::int64_t stage = 0; stage < num_stages; ++stage)
    {
        const std::int64_t ahead = std::min(num_stages - stage - 1, num_micro_batches);
        Work work;
        for (std::int64_t m = 0; m < ahead; ++m) { work.push_back({Kind::forward, m, 0}); }
        for (std::int64_t m = 0; m < num_micro_batches + stage; ++m)
        {
            if (m + ahead < num_micro_batches) { work.push_back({Kind::forward, m + ahead, 0}); }
            if (m < num_micro_batches) { work.push_back({Kind::backward_input, m, 0}); }
            if (m >= stage) { work.push_back({Kind::backward_weight, m - stage, 0}); }
        }
        all.push_back(std::move(work));
        schedule.in_flight_limit.push_back(std::min(num_micro_batches, num_stages));
    }
    add_messages(schedule, all);
    return schedule;
}

namespace
{

/// Work of one stage of a V, chunk by chunk in the order of micro-batches.
class VStage
{
  public:
    explicit VStage(std::int64_t num_micro_batches) : num_micro_batches_(num_micro_batches) {}

    void forward(std::int64_t chunk) { add(Kind::forward, chunk); }
    void input(std::int64_t chunk) { add(Kind::backward_input, chunk); }
    void weight(std::int64_t chunk) { add(Kind::backward_weight, chunk); }
    void both(std::int64_t chunk)
    {
        input(chunk);
        weight(chunk);
    }
    std::int64_t done(Kind kind, std::int64_t chunk) const
    {
        const auto found = next_.find({kind, chunk});
        return found == next_.end() ? 0 : found->second;
    }
    Work work;

  private:
    /// Micro-batches beyond the last are counted, so that the pattern goes on, but not done.
    void add(Kind kind, std::int64_t chunk)
    {
        const std::int64_t m = next_[{kind, chunk}]++;
        if (m < num_micro_batches_) { work.push_back({kind, m, chunk}); }
    }

    std::int64_t num_micro_batches_;
    std::map<std::pair<Kind, std::int64_t>, std::int64_t> next_;
};

/// Slots of equal length. Chunk 0 fills the pipeline until micro-batch 0 comes back up; then both chunks take turns so that the
/// loss is met as early as possible; from there each forward is answered by a backward. At the end the upper stages need
/// gradients first and do weights last.
Work v_stage_work(std::int64_t num_stages, std::int64_t stage, std::int64_t num_micro_batches)
{
    const std::int64_t below = num_stages - stage;  // stages from this one to the turn
    // Fewer micro-batches than fill the V: the same pattern without those that are not there.
    const std::int64_t total = std::max(num_micro_batches, 2 * num_stages - 1);
    VStage v(num_micro_batches);
    for (std::int64_t i = 0; i < 2 * below - 1; ++i) { v.forward(0); }
    for (std::int64_t i = 0; i < stage; ++i)
    {
        v.forward(1);
        v.forward(0);
    }
    for (std::int64_t i = 0; i < below; ++i)
    {
        v.forward(1);
        v.both(1);
    }
    while (v.done(Kind::forward, 1) < total)
    {
        if (v.done(Kind::forward, 0) < total) { v.forward(0); }
        v.both(0);
        v.forward(1);
        v.both(1);
    }
    for (std::int64_t i = 0; i < stage; ++i)
    {
        v.input(0);
        v.input(1);
    }
    for (std::int64_t i = 0; i < below; ++i)
    {
        v.input(0);
        v.weight(0);
    }
    while (v.done(Kind::backward_weight, 1) < total) { v.weight(1); }
    while (v.done(Kind::backward_weight, 0) < total) { v.weight(0); }
    return std::move(v.work);
}

}  // namespace

PipelineSchedule make_zbv_schedule(std::int64_t num_stages, std::int64_t num_micro_batches)
{
    PipelineSchedule schedule = begin(PipelineKind::zbv, num_stages, num_micro_batches, 2);
    std::vector<Work> all;
    for (std::int64_t stage = 0; stage < num_stages; ++stage) { all.push_back(v_stage_work(num_stages, stage, num_micro_batches)); }
    schedule.in_flight_limit.assign(static_cast<std::size_t>(num_stages), 2 * std::min(num_micro_batches, num_stages));
    add_messages(schedule, all);
    return schedule;
}

PipelineSchedule make_schedule(PipelineKind kind, std::int64_t num_stages, std::int64_t num_micro_batches,
                               std::int64_t num_chunks)
{
    if (num_stages == 1) { return make_single_stage_schedule(num_micro_batches); }
    switch (kind)
    {
        case PipelineKind::one_f_one_b: return make_1f1b_schedule(num_stages, num_micro_batches);
        case PipelineKind::gpipe: return make_gpipe_schedule(num_stages, num_micro_batches);
        case PipelineKind::interleaved: return make_interleaved_schedule(num_stages, num_micro_batches, num_chunks);
        case PipelineKind::zb_h1: return make_zb_h1_schedule(num_stages, num_micro_batches);
        case PipelineKind::zbv: return make_zbv_schedule(num_stages, num_micro_batches);
    }
    throw InternalError("unknown pipeline schedule");
}

}  // namespace plimsoll
