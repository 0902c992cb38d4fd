#include "nn/train_setup.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.hpp"
#include "io/file.hpp"
#include "nn/determinism.hpp"
#include "nn/lr_schedule.hpp"
#include "layout/device_mesh.hpp"
#include "layout/precision.hpp"
#include "plan/layout_search.hpp"
#include "plan/plan_inputs.hpp"

namespace plimsoll::nn
{
namespace
{

void check_data(const TrainSetup& setup, const TokenSource& source, const std::string& what)
{
    VALIDATE(source.vocab() <= setup.model.vocab, ConfigError,
             "{} has token ids up to {}, the model's vocabulary is {} (vocab_size in {}). use the tokenizer that the model "
             "was made for",
             what, source.vocab() - 1, setup.model.vocab, setup.config.model.name);
}

bool is_allowed(const TrainOptions& options, const std::string& key)
{
    return std::any_of(options.allow_change.begin(), options.allow_change.end(),
                       [&](const std::string& allowed)
                       {
                           return allowed == key || key.rfind(allowed + ".", 0) == 0;
                       });
}

/// Paths may move: what they name is compared by content in check_resumable().
bool is_judged_by_content(const std::string& key)
{
    const std::string suffix = ".shards";
    return key == "model.name" ||
           (key.size() > suffix.size() && key.compare(key.size() - suffix.size(), suffix.size(), suffix) == 0);
}

}  // namespace

std::int64_t smallest_world(const RunConfig& config)
{
    return std::max<std::int64_t>(1, config.layout.dp) * config.layout.tp * config.layout.pp * config.layout.cp;
}

TrainSetup prepare_training(const RunConfig& config, const TrainOptions& options, const std::string& snapshot,
                            const RankResources& rank)
{
    TrainSetup setup;
    setup.config = config;
    setup.options = options;
    setup.snapshot = snapshot;
    setup.model_config = read_text_file(config.model.name);
    setup.model = parse_model_spec(setup.model_config, config.model.name);
    setup.layout = parallel_layout(config, rank.world);
    const std::string faults = layout_faults(setup.layout, setup.model, config.data.seq_len, rank.world);
    VALIDATE(faults.empty(), ConfigError, "{}", faults);
    const std::string crossing = config.layout.tp_across_nodes || rank.local_ranks >= rank.world
                                     ? ""
                                     : tp_node_fault(setup.layout, rank.local_ranks);
    VALIDATE(crossing.empty(), ConfigError, "{}", crossing);

    const bool validates = !config.eval.shards.empty() && config.eval.every.unit != Span::Unit::never;
    setup.memory = plan_memory(setup.model, setup.layout,
                               step_policies(config, rank.threads, validates ? Validation::planned : Validation::none));
    setup.limit = memory_limit(config.cluster, rank.machine_bytes, rank.local_ranks);
    VALIDATE(setup.memory.peak_bytes() <= setup.limit.bytes, ConfigError, "{}", refusal_text(setup.memory, setup.limit));

    setup.data = std::make_unique<TokenSource>(config.data.sources.front().shards);
    check_data(setup, *setup.data, "data");
    setup.order = std::make_unique<TokenOrder>(*setup.data, config.data.seq_len, config.run.seed);
    setup.plan = make_train_plan(config, setup.order->num_samples());
    VALIDATE(options.stop_at_step <= setup.plan.total_steps, ConfigError,
             "--stop-at-step {} is after the end of the run ({} steps). give a step before it, or leave it out",
             options.stop_at_step, setup.plan.total_steps);

    if (!config.eval.shards.empty())
    {
        setup.eval_data = std::make_unique<TokenSource>(config.eval.shards);
        VALIDATE(setup.eval_data->fingerprint() == setup.data->fingerprint(), ConfigError,
                 "eval.shards were made with tokenizer '{}', data with '{}' (fingerprints differ)",
                 setup.eval_data->shards().front().tokenizer, setup.data->shards().front().tokenizer);
        check_data(setup, *setup.eval_data, "eval");
        setup.eval_set =
            std::make_unique<EvaluationSet>(*setup.eval_data, config.data.seq_len, config.eval.tokens);
    }
    else
    {
        VALIDATE(setup.plan.eval.never(), ConfigError,
                 "eval.every is set but eval.shards is not (nothing to evaluate). set shards in [eval]");
    }

    LrSchedule schedule;
    schedule.kind = schedule_kind(config.train.schedule);
    schedule.lr = config.train.lr;
    schedule.min_lr = config.train.min_lr;
    schedule.warmup_steps = setup.plan.warmup_steps;
    schedule.decay_steps = setup.plan.decay_steps;
    schedule.total_steps = setup.plan.total_steps;
    validate_lr_schedule(schedule);

    setup.parameters = num_parameters(setup.model);
    const std::int64_t element = dtype_bytes(sum_dtype(parameter_dtype(config.train.precision)));
    setup.checkpoint_bytes = setup.parameters * element * 3;
    return setup;
}

void check_resumable(const TrainSetup& setup, const CheckpointMeta& meta, const std::vector<ConfigChange>& changes,
                     const std::string& step_dir)
{
    VALIDATE(meta.model_fingerprint == model_fingerprint(setup.model) || is_allowed(setup.options, "model"), ConfigError,
             "{} is a checkpoint of another model (its config.json differs from '{}'). give the run another name, or "
             "--allow-change model",
             step_dir, setup.config.model.name);
    VALIDATE(meta.trainer.tokenizer == setup.data->fingerprint() || is_allowed(setup.options, "data"), ConfigError,
             "{} was trained with another tokenizer (fingerprint {:.12}, the data's is {:.12}). use shards of the same "
             "tokenizer, or --allow-change data",
             step_dir, meta.trainer.tokenizer, setup.data->fingerprint());
    for (const ConfigChange& change : changes)
    {
        VALIDATE(!setup.config.run.deterministic || !changes_bits(change.key) || is_allowed(setup.options, change.key), ConfigError,
                 "{} changed from '{}' to '{}' (run.deterministic: sums would be taken in another order from {} on). go back to "
                 "it, or --allow-change {}",
                 change.key, change.old_value, change.new_value, step_dir, change.key);
        if (resume_rule(change.key) != ResumeRule::guarded || is_allowed(setup.options, change.key)) { continue; }
        if (is_judged_by_content(change.key)) { continue; }
        throw ConfigError(fmt::format("{} changed from '{}' to '{}' ({} was trained with the old value). "
                                      "go back to it, or --allow-change {}",
                                      change.key, change.old_value, change.new_value, step_dir, change.key));
    }
    const bool seq_len_changed = std::any_of(changes.begin(), changes.end(),
                                             [](const ConfigChange& c) { return c.key == "data.seq-len"; });
    VALIDATE(meta.trainer.plan_hash == setup.order->plan_hash() || is_allowed(setup.options, "data") ||
                 (seq_len_changed && is_allowed(setup.options, "data.seq-len")),
             ConfigError,
             "{} was trained on other data (now: {}). use the same shards, or --allow-change data", step_dir,
             fmt::join(setup.order->plan_fields(), ", "));
}

ResumeChoice choose_resume(const TrainSetup& setup, const std::string& own_checkpoints)
{
    ResumeChoice choice;
    const std::string& resume = setup.config.checkpoint.resume;
    if (resume != "never") { choice.step_dir = find_checkpoint(own_checkpoints, &choice.warnings); }
    else
    {
        VALIDATE(committed_steps(own_checkpoints).empty(), ConfigError,
                 "{} holds committed steps and resume is never. remove them, or give the run another name",
                 own_checkpoints);
    }
    if (choice.step_dir.empty() && resume != "auto" && resume != "never")
    {
        VALIDATE(path_exists(resume), ConfigError,
                 "cannot open checkpoint.resume '{}' (no such file or directory). give a step, a directory with steps, a run "
                 "directory, auto or never",
                 resume);
        choice.step_dir = find_checkpoint(resume, &choice.warnings);
        choice.from_elsewhere = true;
        VALIDATE(!choice.step_dir.empty(), ConfigError, "checkpoint.resume '{}' holds no committed step", resume);
    }
    if (choice.step_dir.empty()) { return choice; }
    const CheckpointReader reader(choice.step_dir);
    choice.step = reader.meta().trainer.step;
    choice.consumed_tokens = reader.meta().trainer.consumed_tokens;
    choice.changes = compare_snapshots(reader.meta().run_ini, setup.snapshot);
    check_resumable(setup, reader.meta(), choice.changes, choice.step_dir);
    return choice;
}

}  // namespace plimsoll::nn
