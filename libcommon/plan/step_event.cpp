#include "plan/step_event.hpp"

#include <fmt/format.h>

namespace plimsoll
{
namespace
{

template<class Enum, std::size_t count>
const char* name_at(const char* const (&names)[count], Enum value)
{
    const auto index = static_cast<std::size_t>(value);
    return index < count ? names[index] : "unknown";
}

}  // namespace

const char* event_kind_name(EventKind kind)
{
    static constexpr const char* names[] = {"alloc", "free", "compute", "workspace", "start", "wait"};
    return name_at(names, kind);
}

const char* plan_op_name(PlanOp op)
{
    static constexpr const char* names[] = {"state", "embedding", "input_norm", "attention", "mlp_norm", "mlp",
                                            "final_norm", "head_loss", "pipeline", "gather", "reduce", "update",
                                            "replicas"};
    return name_at(names, op);
}

const char* step_phase_name(StepPhase phase)
{
    static constexpr const char* names[] = {"start_up", "forward", "backward", "reduce", "update", "validation"};
    return name_at(names, phase);
}

const char* collective_kind_name(CollectiveKind kind)
{
    static constexpr const char* names[] = {"none", "all_reduce", "reduce_scatter", "all_gather", "send", "recv"};
    return name_at(names, kind);
}

const char* group_kind_name(GroupKind group)
{
    static constexpr const char* names[] = {"none", "world", "dp", "replicas", "tp", "pp", "kv", "embedding"};
    return name_at(names, group);
}

const char* memory_use_title(MemoryUse category)
{
    static constexpr const char* names[] = {"parameters",  "gradients", "optimizer", "activations", "embedding, logits, loss",
                                            "communication buffers", "transient"};
    return name_at(names, category);
}

const char* memory_use_name(MemoryUse category)
{
    static constexpr const char* names[] = {"parameters", "gradients",     "optimizer", "activations",
                                            "loss",       "communication", "transient"};
    return name_at(names, category);
}

std::string event_text(const StepEvent& event)
{
    std::string text = fmt::format("{} {}.{}", event_kind_name(event.kind), plan_op_name(event.op), event.name);
    if (event.collective != CollectiveKind::none)
    {
        text += fmt::format(" {} over {}", collective_kind_name(event.collective), group_kind_name(event.group));
    }
    if (event.layer >= 0) { text += fmt::format(" of layer {}", event.layer); }
    if (event.micro_batch >= 0) { text += fmt::format(", micro-batch {}", event.micro_batch); }
    return text + fmt::format(" ({} B)", event.bytes);
}

}  // namespace plimsoll
