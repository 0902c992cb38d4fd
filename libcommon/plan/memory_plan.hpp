#pragma once
/// Peak memory of a run by category and pipeline stage: a fold over the step program.
///
/// Counted is what the trainer's allocators are asked for (tensors and flat buffers), per rank. Not counted: the program and its
/// libraries, token batches, buffers of files.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "plan/step_program.hpp"

namespace plimsoll
{

/// The highest point of a stretch of events, with what was there at that moment.
struct MemoryPeak
{
    std::int64_t bytes = 0;
    BytesByUse categories{};
    StepPhase phase = StepPhase::start_up;
    PlanOp op = PlanOp::state;
    std::int64_t layer = -1;
    std::int64_t micro_batch = -1;

    std::int64_t of(MemoryUse category) const { return categories[static_cast<std::size_t>(category)]; }
    /// "backward of layer 31, micro-batch 2" (micro-batches count from 1), "validation", "start".
    std::string where() const;
};

/// Adds up events; a workspace counts at its moment only.
class MemoryFold
{
  public:
    /// Not thread-safe.
    void add(const StepEvent& event);
    std::int64_t current() const { return current_; }
    const BytesByUse& categories() const { return categories_; }
    const MemoryPeak& peak() const { return peak_; }
    /// The next peak starts from what is there now.
    void reset_peak();

  private:
    void raise_peak(const StepEvent& event, std::int64_t extra);

    std::int64_t current_ = 0;
    BytesByUse categories_{};
    MemoryPeak peak_;
};

struct RankMemory
{
    MeshCoordinate coordinate;
    std::int64_t start_up_bytes = 0;      ///< what exists all the time
    std::int64_t after_step_bytes = 0;    ///< equal to start_up_bytes, or tensors outlive the step
    std::int64_t micro_batches_in_flight = 1; ///< of chunks, where a stage has several: micro-batches in each, added up
    std::vector<StageChunk> chunks;
    std::int64_t num_layers() const;
    MemoryPeak step;
    MemoryPeak validation;                ///< bytes 0: the run does not validate
    const MemoryPeak& peak() const { return validation.bytes > step.bytes ? validation : step; }
};

RankMemory plan_rank_memory(const StepInputs& inputs);
/// With step_schedule() of the layout at hand.
RankMemory plan_rank_memory(const StepInputs& inputs, const PipelineSchedule& schedule);

struct MemoryPlan
{
    ModelSpec model;
    ParallelLayout layout;
    StepPolicies policies;
    std::vector<RankMemory> stages;  ///< the rank of each stage that needs most; others need at most a little less

    std::int64_t worst_stage() const;  ///< that needs most
    const RankMemory& worst() const { return stages[static_cast<std::size_t>(worst_stage())]; }
    std::int64_t peak_bytes() const { return worst().peak().bytes; }
};

/// @pre validate(layout, model, layout.world()) is empty
MemoryPlan plan_memory(const ModelSpec& model, const ParallelLayout& layout, const StepPolicies& policies);

/// plan_memory().peak_bytes() from the few stages that can need most: for searches.
std::int64_t planned_peak_bytes(const ModelSpec& model, const ParallelLayout& layout, const StepPolicies& policies);

/// What a rank may use, and who said so.
struct MemoryLimit
{
    std::int64_t bytes = 0;
    std::string source;  ///< "--memory-limit", "memory of this machine / 2 ranks"
};

/// One unit for all numbers of a table: GiB, MiB or KiB after its largest.
struct MemoryUnit
{
    const char* name = "MiB";
    double bytes = 1048576.0;
    /// "36.73": two digits behind the point below 100, one from there on.
    std::string text(std::int64_t value) const;
};
MemoryUnit memory_unit_for(std::int64_t largest);

/// "peak 112 MiB per rank: parameters 10, gradients 10, optimizer 20, activations 64 MiB   limit 11.4 GiB: ok"
std::string plan_row(const RankMemory& rank, const MemoryLimit& limit);

/// "plan 112.0 MiB, measured 111.6 MiB (-0.4 %)"
std::string plan_against_measured(std::int64_t planned, std::int64_t measured);

/// Schema 1, the text of plan.json and of plimsoll-estimate --json: "ranks" holds the rank of each stage that needs most, with
/// "peak_bytes" and "categories" [{"name", "bytes"}] at that moment, and in "communication" the "calls" and "bytes" sent in one step by group.
nlohmann::ordered_json memory_plan_json(const MemoryPlan& plan, const MemoryLimit& limit);

}  // namespace plimsoll
