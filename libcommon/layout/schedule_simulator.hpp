#pragma once
/// How long a schedule takes when every chunk's forward and backward take the same given time and messages take none.

#include <vector>

#include "layout/pipeline_schedule.hpp"

namespace plimsoll
{

/// Of one chunk, in any unit. A plain backward takes the sum of its halves.
struct ActionTimes
{
    double forward = 1;
    double backward_input = 1;
    double backward_weight = 1;
    double of(ActionKind kind) const; ///< 0 for sends and receives
};

/// One forward or backward on a stage.
struct TimedWork
{
    Action action;
    double start = 0;
    double end = 0;
};

struct SimulatedStage
{
    std::vector<TimedWork> work; ///< in order
    double busy = 0;
    double idle_inside = 0;      ///< between its first start and its last end
};

struct SimulatedSchedule
{
    std::vector<SimulatedStage> stages;
    double length = 0;           ///< from the first start to the last end of all stages
    /// Share of the stages' time without work.
    double bubble() const;
};

/// @pre verify_schedule(schedule) is empty
SimulatedSchedule simulate_schedule(const PipelineSchedule& schedule, const ActionTimes& times);

}  // namespace plimsoll
