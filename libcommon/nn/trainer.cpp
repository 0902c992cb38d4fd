#include "nn/trainer.hpp"

#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>

#include <chrono>
#include <filesystem>

#include "base/error.hpp"
#include "base/units.hpp"
#include "comm/exchange.hpp"
#include "comm/rank_activity.hpp"
#include "layout/precision.hpp"
#include "nn/cpu_allocator.hpp"
#include "nn/determinism.hpp"
#include "nn/ops/tensor_view.hpp"

namespace plimsoll::nn
{
namespace
{

double now_seconds()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

at::ScalarType scalar_type(const std::string& precision)
{
    switch (parameter_dtype(precision))
    {
        case Dtype::f64: return at::kDouble;
        case Dtype::bf16: return at::kBFloat16;
        default: return at::kFloat;
    }
}

std::vector<OptimizerGroup> optimizer_groups(const RunConfig::Train& train, const ModelSpec& model)
{
    OptimizerGroup decay, no_decay;
    decay.name = "decay";
    no_decay.name = "no_decay";
    for (OptimizerGroup* group : {&decay, &no_decay})
    {
        group->lr = train.lr;
        group->beta1 = train.beta1;
        group->beta2 = train.beta2;
        group->eps = train.eps;
    }
    decay.weight_decay = train.weight_decay;
    for (const TensorSpec& tensor : canonical_tensors(model))
    {
        if (tensor.decay == DecayGroup::decay) { decay.tensors.push_back(tensor.name); }
        if (tensor.decay == DecayGroup::no_decay) { no_decay.tensors.push_back(tensor.name); }
    }
    return {decay, no_decay};
}

StepSettings step_settings(const TrainSetup& setup)
{
    StepSettings settings;
    settings.seq_len = setup.config.data.seq_len;
    settings.micro_batch = setup.layout.micro_batch;
    settings.global_batch = setup.layout.global_batch;
    settings.schedule.kind = schedule_kind(setup.config.train.schedule);
    settings.schedule.lr = setup.config.train.lr;
    settings.schedule.min_lr = setup.config.train.min_lr;
    settings.schedule.warmup_steps = setup.plan.warmup_steps;
    settings.schedule.decay_steps = setup.plan.decay_steps;
    settings.schedule.total_steps = setup.plan.total_steps;
    settings.beta1 = setup.config.train.beta1;
    settings.beta2 = setup.config.train.beta2;
    settings.eps = setup.config.train.eps;
    settings.weight_decay = setup.config.train.weight_decay;
    settings.clip = setup.config.train.clip;
    settings.dropout.hidden = setup.config.train.hidden_dropout;
    settings.dropout.embedding = setup.config.train.embedding_dropout;
    settings.seed = setup.config.run.seed;
    settings.document_masks = setup.config.data.document_masks;
    return settings;
}

/// Bytes by tag at the moment of the peak, under the names that the plan uses.
nlohmann::ordered_json peak_by_category(const MemoryTracker& memory, std::int64_t scratch)
{
    nlohmann::ordered_json categories = nlohmann::ordered_json::object();
    for (int t = 0; t < num_memory_tags; ++t)
    {
        const auto tag = static_cast<MemoryTag>(t);
        const std::int64_t bytes = memory.at_peak(tag) + (tag == MemoryTag::communication ? scratch : 0);
        if (bytes > 0) { categories[std::string(memory_tag_name(tag))] = bytes; }
    }
    return categories;
}

}  // namespace

ResumeChoice choose_resume_together(const TrainSetup& setup, Communicator& world)
{
    if (setup.config.run.deterministic) { require_equal_arithmetic(world); }
    ResumeChoice choice = choose_resume(setup, setup.config.run.dir + "/ckpt");
    const std::string of_first = broadcast_bytes(world, choice.step_dir, 0);
    VALIDATE(of_first == choice.step_dir, CommError,
             "rank {} sees checkpoint '{}', rank 0 sees '{}' (is the run directory on a shared file system?)", world.rank(),
             choice.step_dir, of_first);
    return choice;
}

Trainer::Trainer(const TrainSetup& setup, Communicator& world, RunDirectory* directory, Log& log, int threads)
    : setup_(setup), world_(world), directory_(directory), log_(log), threads_(threads), memory_(install_cpu_allocator()),
      table_(directory != nullptr ? stderr : nullptr, kind_of(stderr)),
      groups_(make_rank_groups(world, setup.layout, setup.model.kv_heads)), meters_(groups_)
{
    if (directory_ != nullptr)
    {
        metrics_ = std::make_unique<MetricsWriter>(directory_->metrics(), directory_->attempt());
    }
}

std::string Trainer::shown_path(const std::string& path) const
{
    return std::filesystem::path(path).lexically_relative(setup_.config.run.dir).string();
}

void Trainer::write_metrics(nlohmann::ordered_json row)
{
    if (metrics_) { metrics_->write(std::move(row)); }
}

std::int64_t Trainer::scratch_bytes() const
{
    std::int64_t bytes = 0;
    for (const auto* group : {&groups_.world, &groups_.dp, &groups_.replicas, &groups_.tp, &groups_.pp, &groups_.kv, &groups_.embedding})
    {
        bytes += (*group)->scratch_bytes();
    }
    return bytes;
}

std::int64_t Trainer::largest(std::int64_t value)
{
    BufferView view;
    view.data = &value;
    view.dtype = Dtype::i64;
    view.count = 1;
    Stream stream;
    world_.all_reduce(view, ReduceOp::max, stream).wait(stream);
    return value;
}

CheckpointMeta Trainer::checkpoint_meta() const
{
    CheckpointMeta meta;
    meta.trainer = state_;
    meta.trainer.groups = optimizer_groups(setup_.config.train, setup_.model);
    for (OptimizerGroup& group : meta.trainer.groups) { group.step = adam_step_; }
    meta.model_config = setup_.model_config;
    meta.model_fingerprint = model_fingerprint(setup_.model);
    meta.layout_note = layout_text(setup_.layout);
    meta.run_ini = setup_.snapshot;
    meta.precision = setup_.config.train.precision;
    return meta;
}

void Trainer::start(const ResumeChoice& choice)
{
    params_ = std::make_unique<ShardedParams>(setup_.model, setup_.layout, groups_.coordinate,
                                              scalar_type(setup_.config.train.precision), memory_);
    const RunConfig::Train& train = setup_.config.train;
    model_ = std::make_unique<Model>(setup_.model, *params_, setup_.config.data.seq_len, train.loss_chunks,
                                     train.label_smoothing, train.z_loss);
    // A rank's micro-batches are as far apart over the border of steps as within one.
    batches_ = std::make_unique<BatchPrefetcher>([this](std::int64_t first, std::int64_t num, TokenBatch& batch)
                                                 { setup_.order->read(first, num, batch); },
                                                 setup_.layout.micro_batch * groups_.dp_size());
    stepper_ = std::make_unique<TrainStep>(*model_, *params_, groups_, step_settings(setup_),
                                           [this](std::int64_t first, std::int64_t num, TokenBatch& batch)
                                           { batches_->get(first, num, batch); });
    replicas_ = std::make_unique<ReplicaCheck>(params_->flat(), setup_.layout, groups_);
    last_eval_.assign(setup_.evals.size(), 0.0);
    state_ = TrainerState();
    if (choice.step_dir.empty()) { params_->initialize(setup_.config.run.seed); }
    else
    {
        const CheckpointReader reader(choice.step_dir);
        load_train_state(reader, setup_.model, *params_, groups_);
        written_as_ = reader.meta().layout_note;
        state_ = reader.meta().trainer;
        for (const OptimizerGroup& group : state_.groups)
        {
            VALIDATE(group.step == state_.groups.front().step, FormatError,
                     "{}: optimizer groups disagree on their step ({} and {})", choice.step_dir,
                     state_.groups.front().step, group.step);
            adam_step_ = group.step;
        }
        if (!choice.from_elsewhere) { saved_step_ = state_.step; }
    }
    state_.seed = setup_.config.run.seed;
    state_.data_order = TokenOrder::version;
    state_.plan_hash = setup_.order->plan_hash();
    state_.plan = setup_.order->plan_fields();
    state_.stages = choice.stages;
    state_.tokenizer = setup_.fingerprint();
}

void Trainer::announce(const ResumeChoice& choice)
{
    for (const std::string& warning : choice.warnings) { log_.warning(warning); }
    for (const ConfigChange& change : choice.changes)
    {
        log_.row("changed", fmt::format("{}: {} -> {}", change.key, change.old_value, change.new_value));
    }
    if (choice.stages.back().base == state_.consumed_samples && choice.stages.size() > 1)
    {
        log_.row("data", fmt::format("stage {} begins at sample {}: all of the present data in a new order", choice.stages.size(),
                                     format_grouped(choice.stages.back().base)));
    }
    if (!choice.step_dir.empty())
    {
        const bool other_layout = !written_as_.empty() && written_as_ != layout_text(setup_.layout);
        log_.row("resume", fmt::format("{}{}: {} steps, {} tokens done",
                                       choice.from_elsewhere ? choice.step_dir : shown_path(choice.step_dir),
                                       other_layout ? fmt::format(" (written as {})", written_as_) : "",
                                       format_grouped(state_.step), format_grouped(state_.consumed_tokens)));
    }
}

TrainReport Trainer::run(const ResumeChoice& choice, const StopSignals& signals)
{
    const c10::AutoGradMode no_autograd(false);
    at::set_num_threads(threads_);
    started_ = now_seconds();
    start(choice);
    announce(choice);

    report_.total_steps = setup_.plan.total_steps;
    if (stop_step_reached()) { report_.reason = fmt::format("--stop-at-step {}", setup_.options.stop_at_step); }
    const auto stopped = [&] { return !report_.reason.empty(); };
    while (!finished() && !stopped())
    {
        one_step(signals);
        run_validations();
        if (stopped() || finished() || setup_.plan.checkpoint.due(state_.step, clock_ - last_save_)) { save(); }
    }
    report_.exit = stopped() ? ExitCode::interrupted : ExitCode::done;
    if (stopped()) { report_.hint = "start again with the same command to continue"; }
    report_.step = state_.step;
    report_.consumed_tokens = state_.consumed_tokens;
    report_.peak_bytes = largest(std::max(report_.peak_bytes, peak_bytes()));
    report_.seconds = now_seconds() - started_;
    return report_;
}

bool Trainer::stop_step_reached() const
{
    return setup_.options.stop_at_step > 0 && state_.step >= setup_.options.stop_at_step && !finished();
}

void Trainer::one_step(const StopSignals& signals)
{
    const double begin = now_seconds();
    memory_.reset_peak();
    world_.activity().set_step(state_.step + 1);
    meters_.take();  // what came between steps
    const StepResult result = stepper_->run(state_.step + 1, state_.consumed_samples, adam_step_ + 1,
                                            {[&] { return signals.requested(); }, begin - started_});
    ++state_.step;
    clock_ = result.clock;
    if (result.updated) { ++adam_step_; }
    check_replicas();
    state_.consumed_samples += setup_.layout.global_batch;
    state_.consumed_tokens += setup_.plan.tokens_per_step;
    report_.loss = result.loss();
    report_.peak_bytes = std::max(report_.peak_bytes, peak_bytes());
    if (result.stop_requested && !finished()) 
    {
        report_.reason = signals.name().empty() ? "a signal on another rank" : signals.name();
    }
    else if (stop_step_reached()) { report_.reason = fmt::format("--stop-at-step {}", setup_.options.stop_at_step); }

    const double seconds = now_seconds() - begin;
    const bool first_of_attempt = mean_step_seconds_ == 0;
    window_seconds_ += seconds;
    ++window_steps_;
    mean_step_seconds_ = first_of_attempt ? seconds : 0.9 * mean_step_seconds_ + 0.1 * seconds;
    log_step(result, seconds);
    const bool last = finished() || !report_.reason.empty();
    if (first_of_attempt || last || state_.step % setup_.config.run.log_every == 0) { print_row(result); }
}

void Trainer::log_step(const StepResult& result, double seconds)
{
    nlohmann::ordered_json row;
    row["step"] = state_.step;
    row["loss"] = result.loss();
    const RunConfig::Train& train = setup_.config.train;
    if (train.label_smoothing > 0 || train.z_loss > 0) { row["cross_entropy"] = result.cross_entropy(); }
    row["grad_norm"] = result.grad_norm;
    row["lr"] = result.lr;
    row["tokens_per_second"] = static_cast<double>(setup_.plan.tokens_per_step) / seconds;
    row["precision"] = train.precision;
    row["consumed_samples"] = state_.consumed_samples;
    row["consumed_tokens"] = state_.consumed_tokens;
    row["valid_tokens"] = result.sums.count;
    row["updated"] = result.updated;
    row["peak_bytes"] = peak_bytes();
    row["peak_by_category"] = peak_by_category(memory_, scratch_bytes());
    row["seconds"] = seconds;
    row["phase_seconds"] = {{"data", result.times.data},
                   {"pipeline", result.times.pipeline},
                   {"forward", result.times.forward},
                   {"backward", result.times.backward},
                   {"reduce", result.times.reduce},
                   {"optimizer", result.times.optimizer}};
    nlohmann::ordered_json groups = nlohmann::ordered_json::object();
    double communication = 0, bubble = 0;
    for (const auto& [name, meter] : meters_.take())
    {
        groups[name] = {{"calls", meter.calls}, {"sent_bytes", meter.bytes}, {"waited_seconds", meter.waited_seconds}};
        (name == "pp" ? bubble : communication) += meter.waited_seconds;
    }
    // A stage waits for its neighbours where the pipeline has a bubble; the messages themselves are little.
    const double data_wait = batches_->take_waited_seconds();
    row["time_split"] = {{"compute", seconds - communication - bubble - data_wait},
                         {"communication", communication},
                         {"bubble", bubble},
                         {"data_wait", data_wait}};
    row["communication"] = std::move(groups);
    write_metrics(std::move(row));
}

void Trainer::print_row(const StepResult& result)
{
    TrainingRow shown;
    shown.step = state_.step;
    shown.loss = result.loss();
    shown.grad_norm = result.grad_norm;
    shown.lr = result.lr;
    shown.tokens_per_second =
        static_cast<double>(setup_.plan.tokens_per_step * window_steps_) / std::max(window_seconds_, 1e-9);
    shown.peak_bytes = peak_bytes();
    shown.seconds_left = mean_step_seconds_ * static_cast<double>(setup_.plan.total_steps - state_.step);
    table_.row(shown);
    window_seconds_ = 0;
    window_steps_ = 0;
    on_progress_(state_.step);
}

void Trainer::check_replicas()
{
    const std::int64_t every = setup_.config.train.check_replicas_every;
    if (every == 0 || state_.step % every != 0) { return; }
    const double begin = now_seconds();
    Stream stream;
    replicas_->run(state_.step, [&](std::int64_t unit) { return held_params(*params_, unit); }, stream);
    nlohmann::ordered_json row;
    row["step"] = state_.step;
    row["replicas_equal"] = true;
    row["seconds"] = now_seconds() - begin;
    write_metrics(std::move(row));
}

void Trainer::run_validations()
{
    for (std::size_t i = 0; i < setup_.evals.size(); ++i)
    {
        const EvalData& data = setup_.evals[i];
        if (!data.every.never() && (finished() || data.every.due(state_.step, clock_ - last_eval_[i])))
        {
            run_validation(data);
            last_eval_[i] = clock_;
        }
    }
}

void Trainer::run_validation(const EvalData& data)
{
    const std::int64_t micro_batch =
        setup_.config.eval.micro_batch > 0 ? setup_.config.eval.micro_batch : setup_.layout.micro_batch;
    const auto on_all = [&] { return evaluate(*model_, *params_, groups_, *data.set, setup_.config.data.seq_len, micro_batch); };
    const EvaluationResult result =
        data.name.empty() ? on_all() : with_context(fmt::format("[eval.{}]", data.name), on_all);
    report_.peak_bytes = std::max(report_.peak_bytes, peak_bytes());
    // A run speaks of [eval], or of its first named set where there is none.
    if (&data == &setup_.evals.front() || report_.val_loss == 0) { report_.val_loss = result.loss; }
    nlohmann::ordered_json row;
    row["step"] = state_.step;
    if (!data.name.empty()) { row["set"] = data.name; }
    row["val_loss"] = result.loss;
    row["perplexity"] = result.perplexity;
    if (result.bits_per_byte > 0) { row["bits_per_byte"] = result.bits_per_byte; }
    row["val_tokens"] = result.tokens;
    row["seconds"] = result.seconds;
    write_metrics(std::move(row));
    ValidationRow shown;
    shown.set = data.name;
    shown.loss = result.loss;
    shown.bits_per_byte = result.bits_per_byte;
    table_.validation(shown);
}

bool Trainer::save()
{
    if (saved_step_ == state_.step) { return true; }
    const double begin = now_seconds();
    last_save_ = clock_;
    SavedStep saved;
    try
    {
        saved = with_context(fmt::format("while saving step {}", state_.step),
                             [&] { return save_train_state(checkpoints(), checkpoint_meta(), *params_, *groups_.world); });
    }
    catch (IoError& error)
    {
        if (setup_.config.checkpoint.on_save_failure == "warn" && !finished())
        {
            log_.warning(fmt::format("{}. training goes on (on-save-failure warn)", error.what()));
            nlohmann::ordered_json row;
            row["step"] = state_.step;
            row["save_failed"] = error.what();
            write_metrics(std::move(row));
            return false;
        }
        error.set_exit_code(ExitCode::fatal);
        throw;
    }
    saved_step_ = state_.step;
    agree(world_,
          [&] { if (directory_ != nullptr) { apply_retention(checkpoints(), setup_.config.checkpoint.keep_last); } });
    const double seconds = now_seconds() - begin;
    log_.row("saved", fmt::format("{}   {}   {:.2f} s",
                                  shown_path(saved.path),
                                  format_storage(static_cast<double>(saved.bytes)), seconds));
    nlohmann::ordered_json row;
    row["step"] = state_.step;
    row["saved_bytes"] = saved.bytes;
    row["seconds"] = seconds;
    write_metrics(std::move(row));
    on_progress_(state_.step);
    return true;
}

}  // namespace plimsoll::nn
