#pragma once
/// Everything that a run needs and that can be checked before a parameter is allocated: the whole of --dry-run.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/cli.hpp"
#include "io/checkpoint.hpp"
#include "io/token_order.hpp"
#include "layout/run_config.hpp"
#include "layout/train_plan.hpp"
#include "plan/memory_plan.hpp"

namespace plimsoll::nn
{

/// Options of plimsoll-train that are not in the run file.
struct TrainOptions
{
    std::vector<std::string> allow_change; ///< guarded keys that may differ from the checkpoint's
    std::string data_change;               ///< "append": the data may have grown since the checkpoint
    std::int64_t stop_at_step = 0;         ///< 0: off; the schedule does not change
};

/// Where the run starts from.
struct ResumeChoice
{
    std::string step_dir;                 ///< empty: from step 0
    std::int64_t step = 0;                ///< done there
    std::int64_t consumed_tokens = 0;
    bool from_elsewhere = false;          ///< another run's checkpoint ([checkpoint] resume = DIR)
    std::vector<ConfigChange> changes;    ///< against the run file that wrote the checkpoint
    std::vector<std::string> warnings;    ///< newer steps that failed validation
    std::vector<DataStage> stages;        ///< of the data, the last is the one that the run goes on in
};

/// A set that is validated on.
struct EvalData
{
    std::string name; ///< of [eval.NAME]; empty for [eval]
    Cadence every;
    std::unique_ptr<TokenSource> tokens;
    std::unique_ptr<EvaluationSet> set;
};

struct TrainSetup
{
    RunConfig config;
    TrainOptions options;
    std::string snapshot;                 ///< resolved run file
    ModelSpec model;
    std::string model_config;             ///< config.json text
    ParallelLayout layout;
    TrainPlan plan;
    MemoryPlan memory;                    ///< of the ranks that need most
    MemoryLimit limit;                    ///< of a rank
    std::vector<std::unique_ptr<TokenSource>> data; ///< of config.data.sources
    std::unique_ptr<TokenOrder> order;
    std::vector<EvalData> evals;          ///< [eval] first
    std::int64_t parameters = 0;
    std::int64_t checkpoint_bytes = 0;

    /// Of the tokenizer that all data was made with.
    const std::string& fingerprint() const;
};

/// What a rank has to itself.
struct RankResources
{
    std::int64_t world = 1;
    std::int64_t threads = 1;
    std::int64_t local_ranks = 1;    ///< ranks that share this machine
    std::int64_t machine_bytes = 0;  ///< memory that they share; 0: unknown, then only [cluster] sets a limit
};

/// Opens model and data and checks them against each other, the layout against the ranks and the plan against the limit; every
/// rank does the same. @throws ConfigError, FormatError
TrainSetup prepare_training(const RunConfig& config, const TrainOptions& options, const std::string& snapshot,
                            const RankResources& rank = {});

/// Passes over each source from the stage's base to the end of the run.
std::vector<double> epochs_in_run(const TrainSetup& setup);

/// The table of the sources: tokens, share, epochs in this run; one line for one source.
std::vector<std::string> describe_data(const TrainSetup& setup);

/// @throws ConfigError when a source would be read more than its max-epochs
void check_max_epochs(const TrainSetup& setup);

/// Ranks that a run of this layout needs: dp tp pp cp, with dp = auto as 1.
std::int64_t smallest_world(const RunConfig& config);

/// Chooses the checkpoint: the run's own newest committed step; else, when `resume` names one, that; else none.
/// Compares its run file with ours. Data that may differ begins a stage of its own, in `setup.order` too: never is the order of
/// samples changed under way. @throws ConfigError for a guarded key that differs without --allow-change
ResumeChoice choose_resume(const TrainSetup& setup, const std::string& own_checkpoints);

/// Stages of the data when the run goes on from a checkpoint: its own, and a new one where the plan is another.
std::vector<DataStage> data_stages(const TrainSetup& setup, const TrainerState& state);

/// Refuses a checkpoint that this run cannot continue: other model, tokenizer, data, seed.
void check_resumable(const TrainSetup& setup, const CheckpointMeta& meta, const std::vector<ConfigChange>& changes,
                     const std::string& step_dir);

}  // namespace plimsoll::nn
