#pragma once
/// One optimizer step: micro-batches through the schedule, gradients reduced, norm and clip, AdamW.
///
/// Over many ranks every rank of a step calls run() with the same arguments. dp ranks take micro-batches in turn, tp ranks the
/// same ones, stages the parts of the schedule that are theirs. What a step returns is the same on all ranks.
///
/// Loss is defined once: sum over all valid tokens of the global batch / their number. The gradient's factor at the source is the
/// constant 1 / (global batch x seq len); nominal / valid, and the clip factor, are applied once in the optimizer.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "comm/rank_groups.hpp"
#include "engine/gradient_reducer.hpp"
#include "engine/schedule_executor.hpp"
#include "io/token_batch.hpp"
#include "layout/send_order.hpp"
#include "nn/lr_schedule.hpp"
#include "nn/model.hpp"
#include "nn/optimizer.hpp"
#include "nn/unit_runner.hpp"

namespace plimsoll::nn
{

struct StepSettings
{
    std::int64_t seq_len = 0;
    std::int64_t micro_batch = 0;  ///< sequences
    std::int64_t global_batch = 0; ///< sequences
    LrSchedule schedule;
    double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
    double clip = 1.0;             ///< 0: off
    DropoutRates dropout;
    std::uint64_t seed = 0;        ///< of the dropout
    bool document_masks = false;   ///< batches say where documents begin: every stage reads them
};

/// Wall time of a step by phase, seconds.
struct StepTimes
{
    double data = 0, forward = 0, backward = 0, pipeline = 0, reduce = 0, optimizer = 0; ///< pipeline: sends and receives
    double total() const { return data + forward + backward + pipeline + reduce + optimizer; }
};

struct StepResult
{
    LossSums sums;         ///< over the global batch
    double grad_norm = 0;  ///< of the averaged gradient, before clipping
    double lr = 0;
    bool updated = true;   ///< false: no token of the batch counts, so there is no gradient
    bool stop_requested = false; ///< on any rank
    double clock = 0;            ///< StepSignals::clock of rank 0
    StepTimes times;
    double loss() const { return sums.count > 0 ? sums.loss / static_cast<double>(sums.count) : 0.0; }
    double cross_entropy() const
    {
        return sums.count > 0 ? sums.cross_entropy / static_cast<double>(sums.count) : 0.0;
    }
};

/// What a rank brings into the agreement at the end of a step.
struct StepSignals
{
    std::function<bool()> stop_requested; ///< asked once
    double clock = 0;                     ///< seconds; all ranks go by rank 0's
};

/// Fills `batch` with `num` sequences from global position `first`.
using BatchSource = std::function<void(std::int64_t first, std::int64_t num, TokenBatch& batch)>;

class TrainStep
{
  public:
    TrainStep(Model& model, ShardedParams& params, RankGroups& groups, StepSettings settings, BatchSource source);

    /// Runs step `step` (from 1) over positions [consumed, consumed + global_batch). `adam_step` is Adam's t of this update.
    /// @throws NumericError when the loss or the norm is not finite; parameters are then untouched.
    StepResult run(std::int64_t step, std::int64_t consumed, std::int64_t adam_step, const StepSignals& signals);

    /// Forward and backward: the gradients of the whole step, unscaled by valid tokens and summed over dp, stay in the flat
    /// buffers (of each unit what this rank owns).
    LossSums accumulate_gradients(std::int64_t step, std::int64_t consumed, StepTimes& times);

    /// The sums over other ranks (GradientReducer::finish); returns this rank's share of the squared global norm.
    double reduce_gradients();

  private:
    void update(double grad_scale, double lr, std::int64_t adam_step);
    void zero_rest(std::int64_t unit, const UnitRange& updated);

    Model& model_;
    ShardedParams& params_;
    RankGroups& groups_;
    StepSettings settings_;
    BatchSource source_;
    PipelineSchedule pipeline_;
    SendOrder send_order_;
    GradientReducer reducer_;
    Stream stream_;
    UnitRunner units_;
};

}  // namespace plimsoll::nn
