#include "nn/train_setup.hpp"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.hpp"
#include "base/units.hpp"
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

/// "data" for [data], "data.web" for [data.web].
std::string section_of(const std::string& prefix, const std::string& name) { return name.empty() ? prefix : prefix + "." + name; }

/// Shards that do not know their tokenizer go with any.
void check_tokenizer(const TrainSetup& setup, const TokenSource& source, const std::string& what)
{
    for (const auto& other : setup.data)
    {
        VALIDATE(source.fingerprint() == other->fingerprint() || source.fingerprint().empty() || other->fingerprint().empty(),
                 ConfigError, "{} were made with tokenizer '{}', data with '{}' (fingerprints differ)", what,
                 source.shards().front().tokenizer, other->shards().front().tokenizer);
    }
}

void open_data(TrainSetup& setup)
{
    const RunConfig::Data& data = setup.config.data;
    const std::int64_t last_mark = std::max({data.fim.prefix, data.fim.suffix, data.fim.middle});
    VALIDATE(last_mark < setup.model.vocab, ConfigError, "data.fim-tokens: id {} is not below the model's vocabulary of {}", last_mark,
             setup.model.vocab);
    std::vector<OrderSource> sources;
    for (const DataSource& source : data.sources)
    {
        auto tokens = std::make_unique<TokenSource>(source.shards, source.vocab > 0 ? source.vocab : setup.model.vocab);
        const std::string section = section_of("data", source.name);
        check_data(setup, *tokens, section);
        check_tokenizer(setup, *tokens, section + ".shards");
        sources.push_back({source.name, tokens.get(), source.weight});
        setup.data.push_back(std::move(tokens));
    }
    setup.order = std::make_unique<TokenOrder>(std::move(sources), OrderSettings{data.seq_len, setup.config.run.seed, data.shuffle, data.fim,
                                                                            data.packing == "best-fit", data.document_masks});
}

void open_eval(TrainSetup& setup, const EvalSet& config, const Cadence& every)
{
    const std::string section = section_of("eval", config.name);
    EvalData data;
    data.name = config.name;
    data.every = every;
    data.tokens = std::make_unique<TokenSource>(config.shards, setup.model.vocab);
    check_tokenizer(setup, *data.tokens, section + ".shards");
    check_data(setup, *data.tokens, section);
    data.set = std::make_unique<EvaluationSet>(*data.tokens, setup.config.data.seq_len, config.tokens,
                                               setup.config.data.document_masks);
    setup.evals.push_back(std::move(data));
}

void open_evals(TrainSetup& setup)
{
    const RunConfig::Eval& eval = setup.config.eval;
    if (!eval.shards.empty())
    {
        EvalSet unnamed;
        unnamed.shards = eval.shards;
        unnamed.tokens = eval.tokens;
        open_eval(setup, unnamed, setup.plan.eval);
    }
    else
    {
        VALIDATE(setup.plan.eval.never() || !eval.sets.empty(), ConfigError,
                 "eval.every is set but eval.shards is not (nothing to evaluate). set shards in [eval]");
    }
    for (std::size_t i = 0; i < eval.sets.size(); ++i) { open_eval(setup, eval.sets[i], setup.plan.eval_sets[i]); }
}

bool is_allowed(const TrainOptions& options, const std::string& key)
{
    return std::any_of(options.allow_change.begin(), options.allow_change.end(),
                       [&](const std::string& allowed)
                       {
                           return allowed == key || key.rfind(allowed + ".", 0) == 0;
                       });
}

bool may_append(const TrainOptions& options) { return options.data_change == "append"; }

/// What a source may be given anew when data is appended; the shards themselves are judged by content.
bool belongs_to_append(const std::string& key)
{
    if (key.rfind("data.", 0) != 0) { return false; }
    const std::string last = key.substr(key.rfind('.') + 1);
    return last == "weight" || last == "vocab" || last == "shards";
}

std::string difference_text(const TrainerState& state, const TokenOrder& order)
{
    if (state.plan.empty()) { return fmt::format("now: {}", fmt::join(order.plan_fields(), ", ")); }
    return plan_difference(state.plan, order.plan_fields());
}

/// Paths may move: what they name is compared by content in check_resumable().
bool is_judged_by_content(const std::string& key)
{
    const std::string suffix = ".shards";
    return key == "model.name" ||
           (key.size() > suffix.size() && key.compare(key.size() - suffix.size(), suffix.size(), suffix) == 0);
}

std::vector<std::string> source_table(const TrainSetup& setup, const std::vector<double>& epochs)
{
    std::size_t width = 6;
    for (const OrderSource& source : setup.order->sources()) { width = std::max(width, source.name.size()); }
    std::vector<std::string> lines = {
        fmt::format("{:<{}}  {:>6}  {:>18}  {:>8}  {:>14}", "source", width, "shards", "tokens", "share", "epochs in run")};
    for (std::size_t d = 0; d < setup.data.size(); ++d)
    {
        const double share = setup.order->samples().share(static_cast<std::int64_t>(d));
        lines.push_back(fmt::format("{:<{}}  {:>6}  {:>18}  {:>6.2f} %  {:>14.2f}", setup.order->sources()[d].name, width,
                                    setup.data[d]->shards().size(), format_grouped(setup.data[d]->num_tokens()), 100 * share,
                                    epochs[d]));
    }
    return lines;
}

}  // namespace

const std::string& TrainSetup::fingerprint() const
{
    const auto known = std::find_if(data.begin(), data.end(), [](const auto& source) { return !source->fingerprint().empty(); });
    return (known == data.end() ? data.front() : *known)->fingerprint();
}

std::vector<double> epochs_in_run(const TrainSetup& setup)
{
    const std::vector<std::int64_t> counts = setup.order->counts(setup.plan.total_steps * setup.layout.global_batch);
    std::vector<double> epochs;
    for (std::size_t d = 0; d < counts.size(); ++d)
    {
        const std::int64_t size = setup.order->samples().size(static_cast<std::int64_t>(d));
        epochs.push_back(static_cast<double>(counts[d]) / static_cast<double>(size));
    }
    return epochs;
}

std::vector<std::string> describe_data(const TrainSetup& setup)
{
    const std::vector<double> epochs = epochs_in_run(setup);
    const auto shards_text = [](std::size_t shards) { return fmt::format("{} shard{}", shards, shards == 1 ? "" : "s"); };
    std::vector<std::string> lines;
    if (setup.data.size() == 1)
    {
        const TokenSource& source = *setup.data.front();
        lines = {fmt::format("{}, {} tokens, {} samples of {}, epochs in this run {:.2f}", shards_text(source.shards().size()),
                            format_grouped(source.num_tokens()), format_grouped(setup.order->num_samples()),
                            setup.config.data.seq_len, epochs.front())};
    }
    else { lines = source_table(setup, epochs); }
    if (setup.config.data.packing == "best-fit")
    {
        lines.push_back(fmt::format("packing best-fit: {:.1f} % of the places for labels are filled", 100 * setup.order->filled()));
    }
    if (setup.config.data.document_masks)
    {
        std::int64_t documents = 0, tokens = 0;
        for (const auto& source : setup.data)
        {
            for (const TokenShardInfo& shard : source->shards()) { documents += shard.num_documents; }
            tokens += source->num_tokens();
        }
        lines.push_back(fmt::format("document masks: attention and positions begin anew with each of {} documents ({:.1f} tokens on average)",
                                    format_grouped(documents),
                                    static_cast<double>(tokens) / static_cast<double>(std::max<std::int64_t>(1, documents))));
    }
    return lines;
}

void check_max_epochs(const TrainSetup& setup)
{
    const std::vector<double> epochs = epochs_in_run(setup);
    const std::vector<std::int64_t> counts = setup.order->counts(setup.plan.total_steps * setup.layout.global_batch);
    for (std::size_t d = 0; d < epochs.size(); ++d)
    {
        const DataSource& source = setup.config.data.sources[d];
        VALIDATE(source.max_epochs == 0 || epochs[d] <= source.max_epochs, ConfigError,
                 "[{}] would be read {:.2f} times in this run ({} of its {} samples, max-epochs {}). {}shorten the run, add data, or "
                 "raise max-epochs",
                 section_of("data", source.name), epochs[d], format_grouped(counts[d]),
                 format_grouped(setup.order->samples().size(static_cast<std::int64_t>(d))), source.max_epochs,
                 epochs.size() > 1 ? "lower its weight, " : "");
    }
}

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

    setup.memory = plan_memory(setup.model, setup.layout,
                               step_policies(config, rank.threads, config.eval.is_planned() ? Validation::planned : Validation::none));
    setup.limit = memory_limit(config.cluster, rank.machine_bytes, rank.local_ranks);
    VALIDATE(setup.memory.peak_bytes() <= setup.limit.bytes, ConfigError, "{}", refusal_text(setup.memory, setup.limit));

    open_data(setup);
    setup.plan = make_train_plan(config, setup.order->num_samples());
    VALIDATE(options.stop_at_step <= setup.plan.total_steps, ConfigError,
             "--stop-at-step {} is after the end of the run ({} steps). give a step before it, or leave it out",
             options.stop_at_step, setup.plan.total_steps);
    open_evals(setup);

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
    VALIDATE(meta.trainer.tokenizer == setup.fingerprint() || is_allowed(setup.options, "data"), ConfigError,
             "{} was trained with another tokenizer (fingerprint {:.12}, the data's is {:.12}). use shards of the same "
             "tokenizer, or --allow-change data",
             step_dir, meta.trainer.tokenizer, setup.fingerprint());
    for (const ConfigChange& change : changes)
    {
        VALIDATE(!setup.config.run.deterministic || !changes_bits(change.key) || is_allowed(setup.options, change.key), ConfigError,
                 "{} changed from '{}' to '{}' (run.deterministic: sums would be taken in another order from {} on). go back to "
                 "it, or --allow-change {}",
                 change.key, change.old_value, change.new_value, step_dir, change.key);
        if (resume_rule(change.key) != ResumeRule::guarded || is_allowed(setup.options, change.key)) { continue; }
        if (is_judged_by_content(change.key) || (may_append(setup.options) && belongs_to_append(change.key))) { continue; }
        throw ConfigError(fmt::format("{} changed from '{}' to '{}' ({} was trained with the old value). "
                                      "go back to it, or --allow-change {}",
                                      change.key, change.old_value, change.new_value, step_dir, change.key));
    }
    const bool seq_len_changed = std::any_of(changes.begin(), changes.end(),
                                             [](const ConfigChange& c) { return c.key == "data.seq-len"; });
    if (meta.trainer.plan_hash == setup.order->plan_hash() || is_allowed(setup.options, "data") ||
        (seq_len_changed && is_allowed(setup.options, "data.seq-len")))
    {
        return;
    }
    if (may_append(setup.options) && !meta.trainer.plan.empty())
    {
        const std::string fault = append_fault(meta.trainer.plan, *setup.order);
        VALIDATE(fault.empty(), ConfigError,
                 "the data is not that of {} with more behind it ({}). --data-change append needs the old shards first; to train on "
                 "other data, --allow-change data",
                 step_dir, fault);
        return;
    }
    throw ConfigError(fmt::format("{} was trained on other data ({}). use the same shards, --data-change append if new ones only stand "
                                  "behind the old, or --allow-change data",
                                  step_dir, difference_text(meta.trainer, *setup.order)));
}

std::vector<DataStage> data_stages(const TrainSetup& setup, const TrainerState& state)
{
    std::vector<DataStage> stages = state.stages;
    const std::string present = setup.order->plan_hash();
    const std::string before = stages.empty() ? state.plan_hash : stages.back().plan_hash;
    if (stages.empty()) { stages.push_back({0, before.empty() ? present : before}); }
    if (stages.back().plan_hash != present) { stages.push_back({state.consumed_samples, present}); }
    return stages;
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
    if (choice.step_dir.empty())
    {
        choice.stages = {{0, setup.order->plan_hash()}};
        check_max_epochs(setup);
        return choice;
    }
    const CheckpointReader reader(choice.step_dir);
    choice.step = reader.meta().trainer.step;
    choice.consumed_tokens = reader.meta().trainer.consumed_tokens;
    choice.changes = compare_snapshots(reader.meta().run_ini, setup.snapshot);
    check_resumable(setup, reader.meta(), choice.changes, choice.step_dir);
    choice.stages = data_stages(setup, reader.meta().trainer);
    setup.order->begin_stage(choice.stages.back().base);
    check_max_epochs(setup);
    return choice;
}

}  // namespace plimsoll::nn
