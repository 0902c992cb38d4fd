#pragma once
/// A pipeline schedule as a value: per stage the ordered actions of one step. One stage is a schedule too.

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
    std::int64_t chunk = 0; ///< virtual stage on this rank
    friend bool operator==(const Action& a, const Action& b)
    {
        return a.kind == b.kind && a.micro_batch == b.micro_batch && a.chunk == b.chunk;
    }
};

struct PipelineSchedule
{
    std::string name;
    std::int64_t num_micro_batches = 1;
    std::vector<std::vector<Action>> stages; ///< one list per stage
};

/// Forward and plain backward of each micro-batch in turn: the schedule of a single stage.
PipelineSchedule make_single_stage_schedule(std::int64_t num_micro_batches);

/// One forward, one backward (PipeDream-flush, Narayanan et al. 2021): stage s of S runs min(S - s - 1, m) forwards first, then a
/// forward and a backward in turn, so that at most S - s micro-batches are in flight. One stage: make_single_stage_schedule().
/// @pre num_stages >= 1, num_micro_batches >= 1
PipelineSchedule make_1f1b_schedule(std::int64_t num_stages, std::int64_t num_micro_batches);

/// Checks without running: order (F before B before W, each exactly once for every micro-batch and chunk; `backward`
/// stands for both B and W), sends and receives that match, and freedom from deadlock. Returns all faults, each naming
/// stage, action and micro-batch; empty when the schedule is sound.
///
/// Chunk c of stage s of S is virtual stage c S + s. Neighbouring virtual stages on different stages exchange one activation
/// and one gradient per micro-batch. A send never waits; a receive waits for its message; messages between two stages
/// arrive in the order sent, so they must be received in that order.
std::vector<std::string> verify_schedule(const PipelineSchedule& schedule);

/// Most (micro-batch, chunk) pairs whose forward is done and whose backward or backward_weight is not, on a stage.
/// @pre 0 <= stage < number of stages
std::int64_t max_in_flight(const PipelineSchedule& schedule, std::int64_t stage);

/// "backward_input", for messages and traces.
const char* action_kind_name(ActionKind kind);

}  // namespace plimsoll
