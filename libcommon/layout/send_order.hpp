#pragma once
/// When a stage waits for what it sent, so that the buffers can go: the trainer does what this says, the plan foretells it.
///
/// A send never waits. Its buffer belongs to it until the other stage has received it, and that is known without asking as
/// soon as a message arrives which the other stage, or one that heard of it, sent later. There the stage waits: it takes no time,
/// cannot stop the pipeline, and ties memory to the schedule, not to the speed of ranks. What nobody answers is waited
/// for at the end.
///
/// Worked example (a test: SendOrder.WorkedExample): 1F1B, 2 stages, 2 micro-batches. Stage 0 sends a0 and a1 ahead; the gradient of
/// micro-batch 0 says that a0 was received (stage 1 takes a1 later), that of micro-batch 1 says it of a1. Stage 1 hears nothing
/// that follows its gradients: it waits for both at the end.

#include <cstdint>
#include <vector>

#include "layout/pipeline_schedule.hpp"

namespace plimsoll
{

class SendOrder
{
  public:
    /// @pre verify_schedule() finds nothing
    SendOrder(const PipelineSchedule& schedule, std::int64_t stage);

    /// The next action of the stage's list has ended: sends to be waited for, in the order sent.
    const std::vector<Action>& after();
    /// The list has ended: the sends that are left. The next call of after() starts over.
    const std::vector<Action>& finish();

  private:
    std::vector<std::vector<Action>> known_;  ///< by action; the last entry: what is left
    std::size_t next_ = 0;
};

}  // namespace plimsoll
