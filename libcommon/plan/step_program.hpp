#pragma once
/// What one rank's control thread issues in one optimizer step, in order: the prediction that the trainer is held against.
///
/// Expanded from model, layout, place and policies by pure functions; 64-bit throughout. Peak memory, step time and traces are
/// folds over these events. The pieces: start-up (parameters, gradients, moments and tables, made once), the step, and one
/// batch of validation.
///
/// Worked example (a test: StepProgram.WorkedExample): one layer, tp 1, pp 1: forward allocates embedding.y, then per layer
/// input_norm.{rstd,y}, attention.{qkv,out,lse,y}, mlp_norm.{rstd,y}, mlp.{pre,act,y} of which act ends at once; the head
/// final_norm.{rstd,y} and head_loss.logits, which ends before backward begins.

#include <vector>

#include "layout/flat_layout.hpp"
#include "layout/schedule_generators.hpp"
#include "plan/activation_table.hpp"

namespace plimsoll
{

/// Doubles that all ranks sum at the end of a step: loss, cross entropy, tokens, norm, and what they agree on.
constexpr std::int64_t num_agreed_values = 6;

struct StepInputs
{
    ModelSpec model;
    ParallelLayout layout;      ///< @pre validate(layout, model, layout.world()) is empty
    MeshCoordinate coordinate;  ///< of the rank
    StepPolicies policies;
};

/// Whether micro-batches that only repeat the steady state are expanded. Without them the peak is the same and a search over
/// layouts takes milliseconds; times and lists need them all.
enum class Repeats : std::uint8_t { all, left_out };

/// The program of one rank as a source of events; what the pieces share is computed once.
class RankProgram
{
  public:
    explicit RankProgram(StepInputs inputs);

    const FlatLayout& flat() const { return flat_; }
    /// Buffers that exist from before the first step to the end of the run.
    void start_up(const EventSink& sink) const;
    /// `schedule` as step_schedule() makes it.
    void step(const PipelineSchedule& schedule, const EventSink& sink) const;
    /// One batch of validation; nothing where policies.eval_micro_batch is 0.
    void validation(const EventSink& sink) const;
    /// What [train] check-replicas-every adds to a step; it allocates nothing.
    void replica_check(const EventSink& sink) const;

  private:
    void scratch(const EventSink& sink) const;

    StepInputs inputs_;
    FlatLayout flat_;
};

struct StepProgram
{
    std::vector<StepEvent> start_up;
    std::vector<StepEvent> step;
    std::vector<StepEvent> validation;
    std::vector<StepEvent> replica_check;
};
StepProgram make_step_program(const StepInputs& inputs);

/// The schedule that the trainer runs: the layout's over its stages and accumulated micro-batches.
PipelineSchedule step_schedule(const ParallelLayout& layout, Repeats repeats);

}  // namespace plimsoll
