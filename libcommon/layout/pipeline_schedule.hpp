#pragma once
/// A pipeline schedule as a value: per stage the ordered actions of one step. One stage is a schedule too.
///
/// A stage holds one or more chunks of the model. All chunks, in the order in which a micro-batch passes them, are the virtual
/// stages; the placement says which stage holds which. Neighbouring virtual stages on different stages exchange one activation
/// and one gradient per micro-batch; on the same stage they hand them over.
///
/// Worked example (a test: ChunkPlacement.WorkedExample): 3 stages of 2 chunks.
///
///                   stage 0   stage 1   stage 2
///     round_robin   0, 3      1, 4      2, 5       chunk c of stage s is virtual stage c S + s
///     v_shape       0, 5      1, 4      2, 3       chunk 1 comes back up: virtual stage 2 S - 1 - s

#include <cstdint>
#include <string>
#include <vector>

namespace plimsoll
{

enum class ActionKind
{
    forward,         ///< F
    backward,        ///< B and W at once, operation by operation: nothing is kept between the halves
    backward_input,  ///< B
    backward_weight, ///< W
    send_activation,
    recv_activation,
    send_gradient,
    recv_gradient,
};

struct Action
{
    ActionKind kind = ActionKind::forward;
    std::int64_t micro_batch = 0;
    std::int64_t chunk = 0; ///< of the stage
    friend bool operator==(const Action& a, const Action& b)
    {
        return a.kind == b.kind && a.micro_batch == b.micro_batch && a.chunk == b.chunk;
    }
};

/// "backward_input", for messages and traces.
const char* action_kind_name(ActionKind kind);
bool is_send(ActionKind kind);
bool is_receive(ActionKind kind);
/// "backward_input of micro-batch 3", with " chunk 1" from the second chunk on.
std::string action_text(const Action& action);

enum class ChunkPlacement : std::uint8_t { round_robin, v_shape };

struct ChunkPlace
{
    std::int64_t stage = 0;
    std::int64_t chunk = 0;
};
/// @pre 0 <= stage < num_stages; v_shape: chunk is 0 or 1
std::int64_t virtual_stage(ChunkPlacement placement, std::int64_t num_stages, std::int64_t stage, std::int64_t chunk);
/// The inverse.
ChunkPlace chunk_place(ChunkPlacement placement, std::int64_t num_stages, std::int64_t virtual_stage);

struct PipelineSchedule
{
    std::string name;
    std::int64_t num_micro_batches = 1;
    std::int64_t num_chunks = 1; ///< of a stage
    ChunkPlacement placement = ChunkPlacement::round_robin;
    std::vector<std::vector<Action>> stages;   ///< one list per stage
    std::vector<std::int64_t> in_flight_limit; ///< per stage, what max_in_flight() must not exceed; empty: no limit

    std::int64_t num_stages() const { return static_cast<std::int64_t>(stages.size()); }
    std::int64_t num_virtual_stages() const { return num_stages() * num_chunks; }
    const std::vector<Action>& actions(std::int64_t stage) const { return stages[static_cast<std::size_t>(stage)]; }
};

/// A message between two stages: the sender's virtual stage sends `kind` (send_activation or send_gradient) of a micro-batch.
struct PipelineMessage
{
    std::int64_t from = 0; ///< stages
    std::int64_t to = 0;
    ActionKind kind = ActionKind::send_activation;
    std::int64_t micro_batch = 0;
    std::int64_t sender = 0; ///< virtual stage
    friend bool operator==(const PipelineMessage& a, const PipelineMessage& b)
    {
        return a.from == b.from && a.to == b.to && a.kind == b.kind && a.micro_batch == b.micro_batch && a.sender == b.sender;
    }
};
/// What a send sends or a receive waits for. @pre is_send(action.kind) or is_receive(action.kind)
PipelineMessage message_of(const PipelineSchedule& schedule, std::int64_t stage, const Action& action);

/// Checks without running: order (F before B before W, each exactly once for every micro-batch and chunk; `backward`
/// stands for both B and W; neighbouring chunks of one stage in the order of the micro-batch), sends and receives that match,
/// freedom from deadlock, and the in-flight limit. Returns all faults, each naming stage, action and micro-batch; empty when the
/// schedule is sound.
///
/// A send never waits; a receive waits for its message; messages between two stages arrive in the order sent, so they must
/// be received in that order.
std::vector<std::string> verify_schedule(const PipelineSchedule& schedule);

/// Most (micro-batch, chunk) pairs whose forward is done and whose backward or backward_weight is not, on a stage.
/// @pre 0 <= stage < number of stages
std::int64_t max_in_flight(const PipelineSchedule& schedule, std::int64_t stage);

}  // namespace plimsoll
