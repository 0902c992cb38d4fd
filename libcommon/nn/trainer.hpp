#pragma once
/// A training run from its first allocation to its last checkpoint: resume -> steps -> validation -> save.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/log.hpp"
#include "base/progress.hpp"
#include "base/signals.hpp"
#include "comm/metered_communicator.hpp"
#include "engine/replica_check.hpp"
#include "io/token_prefetch.hpp"
#include "nn/evaluator.hpp"
#include "nn/train_setup.hpp"
#include "nn/train_state.hpp"
#include "nn/train_step.hpp"
#include "telemetry/metrics.hpp"
#include "telemetry/run_directory.hpp"
#include "telemetry/training_table.hpp"

namespace plimsoll::nn
{

/// How a run ended.
struct TrainReport
{
    ExitCode exit = ExitCode::done;
    std::string reason;      ///< why it stopped early
    std::string hint;
    std::int64_t step = 0;
    std::int64_t total_steps = 0;
    std::int64_t consumed_tokens = 0;
    double loss = 0;         ///< of the last step
    double val_loss = 0;     ///< of the last validation, 0 when there was none
    std::int64_t peak_bytes = 0;
    double seconds = 0;
    bool already_finished = false;
};

/// choose_resume() in the run's own directory, the same on every rank, after what else can refuse a start. Collective.
/// @throws ConfigError as choose_resume(), CommError when the ranks see different checkpoints or compute differently
ResumeChoice choose_resume_together(const TrainSetup& setup, Communicator& world);

class Trainer
{
  public:
    /// The arguments must outlive the trainer. Every rank of `world` makes one; `directory` on rank 0 only, elsewhere null, and
    /// `log` is silent there. `threads` are this rank's. @pre world.size() == setup.layout.world()
    Trainer(const TrainSetup& setup, Communicator& world, RunDirectory* directory, Log& log, int threads);

    /// Goes on from `choice`. @throws NumericError (diverged), IoError and others as they come; nothing half-written stays visible.
    TrainReport run(const ResumeChoice& choice, const StopSignals& signals);

    /// Called on every rank after each table row and each save, with the steps done.
    void on_progress(std::function<void(std::int64_t step)> call) { on_progress_ = std::move(call); }

    /// Steps done so far, for a status file after an error.
    std::int64_t step() const { return state_.step; }

  private:
    void start(const ResumeChoice& choice);
    void announce(const ResumeChoice& choice);
    /// Runs a step and notes in the report why the run should stop, if it should.
    void one_step(const StopSignals& signals);
    void log_step(const StepResult& result, double seconds);
    void print_row(const StepResult& result);
    bool stop_step_reached() const;
    /// Of the sets that are due; after the last step of all.
    void run_validations();
    void run_validation(const EvalData& data);
    /// At its steps. @throws NumericError on all ranks
    void check_replicas();
    /// False when the save failed and the run goes on (on-save-failure warn).
    bool save();
    CheckpointMeta checkpoint_meta() const;
    bool finished() const { return state_.step >= setup_.plan.total_steps; }

    std::string checkpoints() const { return setup_.config.run.dir + "/ckpt"; }
    std::string shown_path(const std::string& path) const;
    /// Rank 0 writes, the others drop the row.
    void write_metrics(nlohmann::ordered_json row);
    /// Of this rank since the last reset: tensors, flat buffers, and scratch of its communicators.
    std::int64_t peak_bytes() const { return memory_.peak() + scratch_bytes(); }
    std::int64_t scratch_bytes() const;
    /// The largest of all ranks, on every rank.
    std::int64_t largest(std::int64_t value);

    const TrainSetup& setup_;
    Communicator& world_;
    RunDirectory* directory_;
    Log& log_;
    int threads_;
    MemoryTracker& memory_;
    TrainingTable table_;
    std::unique_ptr<MetricsWriter> metrics_;
    RankGroups groups_;
    CommunicationMeters meters_;
    std::unique_ptr<ShardedParams> params_;
    std::unique_ptr<Model> model_;
    std::unique_ptr<BatchPrefetcher> batches_;
    std::unique_ptr<TrainStep> stepper_;
    std::unique_ptr<ReplicaCheck> replicas_;
    TrainerState state_;
    std::int64_t adam_step_ = 0;
    std::int64_t saved_step_ = -1;
    std::string written_as_;                   ///< layout of the checkpoint that the run started from
    double started_ = 0;
    double clock_ = 0;                         ///< seconds since the start, of rank 0: cadences in time go by it on all ranks
    double last_save_ = 0;                     ///< on that clock
    std::vector<double> last_eval_;            ///< of each of setup.evals
    double window_seconds_ = 0;                ///< since the last table row
    std::int64_t window_steps_ = 0;
    double mean_step_seconds_ = 0;
    std::function<void(std::int64_t)> on_progress_ = [](std::int64_t) {};
    TrainReport report_;
};

}  // namespace plimsoll::nn
