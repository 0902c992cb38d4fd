#include "layout/pipeline_schedule.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.hpp"

namespace plimsoll
{

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

bool is_send(ActionKind kind)
{
    return kind == ActionKind::send_activation || kind == ActionKind::send_gradient;
}

bool is_receive(ActionKind kind)
{
    return kind == ActionKind::recv_activation || kind == ActionKind::recv_gradient;
}

std::string action_text(const Action& action)
{
    return fmt::format("{} of micro-batch {}{}", action_kind_name(action.kind), action.micro_batch,
                       action.chunk == 0 ? "" : fmt::format(" chunk {}", action.chunk));
}

std::int64_t virtual_stage(ChunkPlacement placement, std::int64_t num_stages, std::int64_t stage, std::int64_t chunk)
{
    const bool back_up = placement == ChunkPlacement::v_shape && chunk % 2 == 1;
    return chunk * num_stages + (back_up ? num_stages - 1 - stage : stage);
}

ChunkPlace chunk_place(ChunkPlacement placement, std::int64_t num_stages, std::int64_t virtual_stage)
{
    ChunkPlace place;
    place.chunk = virtual_stage / num_stages;
    place.stage = virtual_stage % num_stages;
    if (placement == ChunkPlacement::v_shape && place.chunk % 2 == 1) { place.stage = num_stages - 1 - place.stage; }
    return place;
}

PipelineMessage message_of(const PipelineSchedule& schedule, std::int64_t stage, const Action& action)
{
    EXPECT(is_send(action.kind) || is_receive(action.kind));
    const bool activation = action.kind == ActionKind::send_activation || action.kind == ActionKind::recv_activation;
    const std::int64_t here = virtual_stage(schedule.placement, schedule.num_stages(), stage, action.chunk);
    const std::int64_t step = activation ? 1 : -1;
    PipelineMessage message;
    message.kind = activation ? ActionKind::send_activation : ActionKind::send_gradient;
    message.micro_batch = action.micro_batch;
    message.sender = is_send(action.kind) ? here : here - step;
    message.from = chunk_place(schedule.placement, schedule.num_stages(), message.sender).stage;
    message.to = chunk_place(schedule.placement, schedule.num_stages(), message.sender + step).stage;
    return message;
}

std::int64_t max_in_flight(const PipelineSchedule& schedule, std::int64_t stage)
{
    EXPECT(stage >= 0 && stage < schedule.num_stages());
    std::set<std::pair<std::int64_t, std::int64_t>> in_flight;
    std::size_t most = 0;
    for (const Action& action : schedule.actions(stage))
    {
        const std::pair<std::int64_t, std::int64_t> key(action.micro_batch, action.chunk);
        if (action.kind == ActionKind::forward) { in_flight.insert(key); }
        if (action.kind == ActionKind::backward || action.kind == ActionKind::backward_weight) { in_flight.erase(key); }
        most = std::max(most, in_flight.size());
    }
    return static_cast<std::int64_t>(most);
}

}  // namespace plimsoll
