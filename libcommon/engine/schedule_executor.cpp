#include "engine/schedule_executor.hpp"

#include "base/error.hpp"

namespace plimsoll
{
namespace
{

const std::function<void(const Action&)>& callback_for(const ScheduleCallbacks& callbacks, ActionKind kind)
{
    switch (kind)
    {
        case ActionKind::forward: return callbacks.forward;
        case ActionKind::backward: return callbacks.backward;
        case ActionKind::backward_input: return callbacks.backward_input;
        case ActionKind::backward_weight: return callbacks.backward_weight;
        case ActionKind::send_activation: return callbacks.send_activation;
        case ActionKind::recv_activation: return callbacks.recv_activation;
        case ActionKind::send_gradient: return callbacks.send_gradient;
        case ActionKind::recv_gradient: return callbacks.recv_gradient;
    }
    throw InternalError("unknown action in a schedule");
}

}  // namespace

void run_schedule(const PipelineSchedule& schedule, std::int64_t stage, const ScheduleCallbacks& callbacks)
{
    EXPECT(stage >= 0 && stage < static_cast<std::int64_t>(schedule.stages.size()));
    for (const Action& action : schedule.stages[static_cast<std::size_t>(stage)])
    {
        const auto& callback = callback_for(callbacks, action.kind);
        if (!callback) { throw InternalError(fmt::format("no callback for {}", action_text(action))); }
        with_context("in " + action_text(action), [&] { callback(action); });
        if (callbacks.after_action) { callbacks.after_action(action); }
    }
}

}  // namespace plimsoll
