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

/// Forward, backward-input, backward-weight of each micro-batch in turn: the schedule of a single stage.
PipelineSchedule make_single_stage_schedule(std::int64_t num_micro_batches);

/// Checks order (F before B before W, each exactly once), matching sends and receives, and freedom from deadlock, without
/// running. Returns all faults; empty when the schedule is sound.
std::vector<std::string> verify_schedule(const PipelineSchedule& schedule);

/// Most micro-batches whose forward is done and whose backward_weight is not, on a stage.
std::int64_t max_in_flight(const PipelineSchedule& schedule, std::int64_t stage);

}  // namespace plimsoll
