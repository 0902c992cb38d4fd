#pragma once
/// One thing that a rank's control thread does in a step, as the plan predicts it and as a recorder notes it.
///
/// A named tensor is identified by (op, name, layer, micro_batch): `op` is the operation that makes it, whoever frees it. Names
/// are string literals of the activation table and are compared as text.

#include <array>
#include <cstdint>
#include <functional>
#include <string>

#include "layout/collective_cost.hpp"

namespace plimsoll
{

enum class EventKind : std::uint8_t
{
    alloc,      ///< a named tensor begins
    free,       ///< it ends
    compute,    ///< an operation's arithmetic
    workspace,  ///< memory that comes and goes inside an operation: at most `bytes` at once
    start,      ///< a collective or message is issued
    wait,       ///< its completion is waited for
};

/// Who makes the tensor or does the work.
enum class PlanOp : std::uint8_t
{
    state,      ///< what exists before the first step
    embedding,
    input_norm,
    attention,
    mlp_norm,
    mlp,
    final_norm,
    head_loss,
    pipeline,   ///< messages between stages
    gather,     ///< parameters of a unit, where a rank keeps a shard
    reduce,     ///< gradients over ranks
    update,     ///< optimizer
    replicas,   ///< comparison of copies
};

enum class StepPhase : std::uint8_t
{
    start_up,
    forward,
    backward,
    reduce,
    update,
    validation,
};

/// What memory is for: the rows of the memory table.
enum class MemoryUse : std::uint8_t
{
    parameters,     ///< and tables that follow from the model, such as rope angles
    gradients,
    optimizer,
    activations,    ///< kept for backward
    loss,           ///< embedding output, last norm, logits
    communication,  ///< messages between stages, scratch of collectives
    transient,      ///< inside an operation: gradients of activations, kernels' workspace
};
constexpr int num_memory_uses = 7;
using BytesByUse = std::array<std::int64_t, num_memory_uses>;

enum class GroupKind : std::uint8_t { none, world, dp, replicas, tp, pp, kv, embedding };

struct StepEvent
{
    EventKind kind = EventKind::compute;
    PlanOp op = PlanOp::state;
    StepPhase phase = StepPhase::start_up;
    MemoryUse category = MemoryUse::transient; ///< of alloc, free and workspace
    CollectiveKind collective = CollectiveKind::none;    ///< of start and wait
    GroupKind group = GroupKind::none;                   ///< of start and wait
    const char* name = "";                               ///< tensor, kernel or message
    std::int64_t layer = -1;                             ///< global layer number; -1 outside blocks
    std::int64_t micro_batch = -1;                       ///< -1 outside micro-batches
    std::int64_t bytes = 0;                              ///< of the tensor, workspace or message; compute: memory traffic
    std::int64_t id = -1;                                ///< start and wait of one operation share it
    double flops = 0;                                    ///< of compute: multiply and add counted as two
};

using EventSink = std::function<void(const StepEvent&)>;

const char* event_kind_name(EventKind kind);
const char* plan_op_name(PlanOp op);
const char* step_phase_name(StepPhase phase);
const char* collective_kind_name(CollectiveKind kind);
const char* group_kind_name(GroupKind group);
/// "embedding, logits, loss": as the table prints it.
const char* memory_use_title(MemoryUse category);
/// "loss": JSON keys and tags.
const char* memory_use_name(MemoryUse category);

/// "attention.qkv of layer 3, micro-batch 0": for messages and tests.
std::string event_text(const StepEvent& event);

}  // namespace plimsoll
