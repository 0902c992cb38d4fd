#pragma once
/// Turns the pieces of a rank's step into events, in order. Internal to step_program.

#include <cstdint>
#include <memory>

#include "plan/step_program.hpp"

namespace plimsoll
{

/// Sends the events of one rank to a sink, with layer, micro-batch, phase and the numbers of collectives filled in.
class StepExpander
{
  public:
    /// `batch`: sequences of a micro-batch. The arguments must outlive it.
    StepExpander(const StepInputs& inputs, std::int64_t batch, const EventSink& sink);
    ~StepExpander();
    StepExpander(const StepExpander&) = delete;
    StepExpander& operator=(const StepExpander&) = delete;

    /// Forward and backward of all micro-batches.
    void run(const FlatLayout& flat, const PipelineSchedule& schedule);
    /// What follows them in a step.
    void reduce_and_update(const FlatLayout& flat);
    /// One batch of validation.
    void validate(const FlatLayout& flat);
    /// The comparison of copies.
    void check_replicas(const FlatLayout& flat);
    /// Every kind of collective that a step makes, once or more.
    void all_collectives(const FlatLayout& flat);

  private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace plimsoll
