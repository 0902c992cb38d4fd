#pragma once
/// Executes a PipelineSchedule through callbacks; torch-free, so that it runs under ThreadSanitizer.
///
/// One control thread per rank calls run_schedule(). What a forward keeps alive and what a backward_input leaves for
/// backward_weight belongs to the callbacks' owner, keyed by (micro_batch, chunk).

#include <cstdint>
#include <functional>

#include "layout/pipeline_schedule.hpp"

namespace plimsoll
{

/// What a rank does for each action. A callback that the rank's stage never needs may be empty (a single stage sends and
/// receives nothing); an action without its callback is an InternalError.
struct ScheduleCallbacks
{
    std::function<void(const Action&)> forward;
    std::function<void(const Action&)> backward; ///< both halves at once, operation by operation
    std::function<void(const Action&)> backward_input;
    std::function<void(const Action&)> backward_weight;
    std::function<void(const Action&)> send_activation;
    std::function<void(const Action&)> recv_activation;
    std::function<void(const Action&)> send_gradient;
    std::function<void(const Action&)> recv_gradient;
    /// After each action; communicators make progress here.
    std::function<void(const Action&)> after_action;
};

/// Runs the list of `stage` in order. An Error that leaves a callback carries the action as context
/// ("in backward_input of micro-batch 3").
void run_schedule(const PipelineSchedule& schedule, std::int64_t stage, const ScheduleCallbacks& callbacks);

}  // namespace plimsoll
