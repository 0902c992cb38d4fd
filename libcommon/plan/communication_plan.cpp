#include "plan/communication_plan.hpp"

#include <algorithm>

#include "layout/collective_cost.hpp"
#include "layout/stage_split.hpp"

namespace plimsoll
{
std::int64_t group_size(const StepInputs& inputs, GroupKind group)
{
    const ParallelLayout& layout = inputs.layout;
    switch (group)
    {
        case GroupKind::world: return layout.world();
        case GroupKind::dp: return layout.shards();
        case GroupKind::replicas: return layout.replicas();
        case GroupKind::tp: return layout.tp;
        case GroupKind::pp: return layout.pp;
        case GroupKind::kv: return std::max<std::int64_t>(1, layout.tp / inputs.model.kv_heads);
        case GroupKind::embedding: return inputs.model.tied && ends_are_apart(layout) ? 2 : 1;
        case GroupKind::none: break;
    }
    return 1;
}

std::map<std::string, PlannedCommunication> plan_communication(const StepInputs& inputs)
{
    std::map<std::string, PlannedCommunication> groups;
    const EventSink add = [&](const StepEvent& event)
    {
        if (event.kind != EventKind::start) { return; }
        PlannedCommunication& group = groups[group_kind_name(event.group)];
        ++group.calls;
        group.bytes += sent_bytes(event.collective, event.bytes, group_size(inputs, event.group));
    };
    RankProgram(inputs).step(step_schedule(inputs.layout, Repeats::all), add);
    return groups;
}

}  // namespace plimsoll
