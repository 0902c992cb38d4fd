#include "layout/run_config.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>

#include "base/run_file.hpp"
#include "layout/model_files.hpp"
#include "layout/parallel_layout.hpp"
#include "layout/run_config_data.hpp"
#include "layout/run_config_limits.hpp"

namespace plimsoll
{

namespace
{

using Names = std::vector<std::string>;
constexpr auto one = OptionSet::Arity::one;
constexpr auto list = OptionSet::Arity::list;

/// A key of the design that this version knows by name only; limit_run_config() refuses it.
void add_planned(OptionSet& options, const std::string& section, const std::string& key, const std::string& help)
{
    options.add_custom(
        section, key, list, "", [](const OptionValue& value) { return value.text; }, help);
}

void declare_run(OptionSet& options, RunConfig::Run& run)
{
    options.add_text("run", "name", run.name, "name of the run").value_name("NAME");
    options.add_path("run", "dir", run.dir, "directory of the run")
        .value_name("DIR")
        .shown_default("runs/<name> under the working directory")
        .peers({"output-dir", "job.dump-folder", "logging-dir"});
    options.add_count("run", "seed", run.seed, "initialisation, dropout and data order")
        .flag("seed")
        .peers({"data-seed", "general.seed"});
    options.add_choice("run", "device", run.device, {"cpu", "cuda"}, "where the model runs").flag("device");
    options.add_count("run", "threads", run.threads, "threads of a rank")
        .flag("threads")
        .shown_default("cores / ranks on this node")
        .range(0, 4096);
    options.add_count("run", "log-every", run.log_every, "distance of table rows")
        .unit("steps")
        .flag("log-every")
        .range(1)
        .peers({"log-interval", "steps-per-print", "iteration-step-info-interval", "log-freq", "metrics.log-freq"});
    options
        .add_duration("run", "watchdog", run.watchdog_s,
                      "a wait for other ranks ends the job when none of them makes progress for so long")
        .flag("watchdog")
        .peers({"distributed-timeout-minutes", "comm.init-timeout-seconds", "comm.train-timeout-seconds"});
    options
        .add_flag("run", "signal-usr1", run.signal_usr1,
                  "USR1 also means: save and stop (mpiexec sends it to survivors)")
        .flag("signal-usr1")
        .peers({"exit-signal-handler"});
    options
        .add_flag("run", "deterministic", run.deterministic,
                  "refuse settings under which a repetition would not have the same bits")
        .flag("deterministic")
        .peers({"deterministic-mode", "use-deterministic-algorithms", "debug.deterministic", "full-determinism"});
    options.on_parsed(
        [&options, &run]
        {
            VALIDATE(!run.name.empty() && run.name.find('/') == std::string::npos, ConfigError,
                     "run.name '{}' is not a name (it becomes a folder). use letters, digits, '-' and '_'", run.name);
            if (!run.dir.empty()) { return; }
            run.dir = resolve_path("runs/" + run.name, std::filesystem::current_path().string());
            options.set_derived("run.dir", run.dir, "from run.name");
        });
}

void declare_model(OptionSet& options, RunConfig::Model& model)
{
    options
        .add_custom(
            "model", "name", one, "",
            [&model](const OptionValue& value)
            {
                try
                {
                    return model.name = find_model(value.text, value.directory);
                }
                catch (const ConfigError&)
                {
                    if (value.use == Use::needed) { throw; }
                    return model.name = resolve_path(value.text, value.directory);
                }
            },
            "config.json (HF style), a folder with one, or a known name such as gpt2")
        .flag("model")
        .value_name("MODEL")
        .peers({"model-name-or-path", "model.flavor", "model-config", "hf-model"});
    add_planned(options, "model", "init-from", "start from these weights");
    add_planned(options, "model", "trainable", "tensors that learn");
    for (const char* key : {"rank", "alpha", "dropout", "targets"})
    {
        add_planned(options, "lora", key, "low-rank adapters");
    }
}

void declare_layout(OptionSet& options, RunConfig::Layout& layout)
{
    options
        .add_custom(
            "layout", "dp", one, "auto",
            [&layout](const OptionValue& value)
            {
                layout.dp = value.text == "auto" ? 0 : parse_count(value.text);
                VALIDATE(value.text == "auto" || layout.dp > 0, ConfigError, "{} is too small (at least 1)",
                         value.text);
                return layout.dp == 0 ? std::string("auto") : std::to_string(layout.dp);
            },
            "data parallel degree; auto: world / (tp pp cp)")
        .flag("dp")
        .value_name("N|auto")
        .peers({"data-parallel-size", "data-parallel-shard-degree", "parallelism.data-parallel-shard-degree",
                "world-size"});
    options.add_count("layout", "tp", layout.tp, "tensor parallel degree")
        .flag("tp")
        .range(1)
        .peers({"tensor-model-parallel-size", "tensor-parallel-degree", "parallelism.tensor-parallel-degree", "tp-size",
                "autotp-size", "model-parallel-size"});
    options
        .add_flag("layout", "sequence-parallel", layout.sequence_parallel,
                  "cut what tp leaves whole by tokens: residual stream, norms, hidden dropout; without effect where tp is 1")
        .flag("sequence-parallel")
        .peers({"enable-sequence-parallel", "parallelism.enable-sequence-parallel"});
    options.add_count("layout", "pp", layout.pp, "pipeline parallel degree")
        .flag("pp")
        .range(1)
        .peers({"pipeline-model-parallel-size", "pipeline-parallel-degree", "parallelism.pipeline-parallel-degree",
                "pp-size", "pipe-parallel-size"});
    options.add_count("layout", "cp", layout.cp, "context parallel degree")
        .flag("cp")
        .range(1)
        .peers({"context-parallel-size", "context-parallel-degree", "parallelism.context-parallel-degree",
                "sequence-parallel-size"});
    options.add_count("layout", "ep", layout.ep, "expert parallel degree")
        .flag("ep")
        .range(1)
        .peers({"expert-model-parallel-size", "expert-parallel-degree", "parallelism.expert-parallel-degree"});
    options.add_count("layout", "zero", layout.zero, "ZeRO stage: 0 1 2 3")
        .flag("zero")
        .range(0, 3)
        .peers({"zero-stage", "zero-level", "stage", "zero-optimization.stage", "zero-optimization"});
    options
        .add_count("layout", "dp-shard", layout.dp_shard,
                   "neighbouring dp ranks that share one copy of what zero shards, the others hold replicas; 0: all of dp")
        .range(0)
        .peers({"data-parallel-replicate-degree", "parallelism.data-parallel-replicate-degree",
                "num-distributed-optimizer-instances", "zero-hpz-partition-size", "mics-shard-size"});
    options
        .add_bytes("layout", "bucket", layout.bucket,
                   "gradients that are reduced together, at least: while the backward of other layers runs")
        .peers({"ddp-bucket-size", "reduce-bucket-size", "zero-optimization.reduce-bucket-size"});
    options
        .add_bytes("layout", "resident", layout.resident, "zero 3: layers with less than this keep their parameters gathered")
        .peers({"stage3-param-persistence-threshold", "zero-optimization.stage3-param-persistence-threshold"});
    options
        .add_flag("layout", "prefetch", layout.prefetch, "zero 3: gather the next layer's parameters while one computes")
        .peers({"stage3-prefetch-bucket-size", "overlap-param-gather"});
    options
        .add_count("layout", "micro-batch", layout.micro_batch, "batch of one forward pass on one data-parallel rank")
        .unit("sequences")
        .flag("micro-batch")
        .range(1)
        .peers({"micro-batch-size", "train-micro-batch-size-per-gpu", "local-batch-size", "training.local-batch-size",
                "per-device-train-batch-size"});
    options.add_count("layout", "global-batch", layout.global_batch, "batch of one optimizer step")
        .unit("sequences")
        .flag("global-batch")
        .range(1)
        .peers({"global-batch-size", "train-batch-size", "training.global-batch-size", "batch-size"});
}

void declare_pipeline(OptionSet& options, RunConfig::Layout& layout)
{
    options
        .add_choice("layout", "schedule", layout.schedule, pipeline_kind_names(), "order of a pipeline's forwards and backwards")
        .flag("pp-schedule")
        .peers({"pipeline-parallel-schedule", "parallelism.pipeline-parallel-schedule", "pp-engine", "pp-style"});
    options.add_count("layout", "virtual-stages", layout.virtual_stages, "chunks of the model on each pipeline stage")
        .flag("virtual-stages")
        .range(1)
        .no_default()
        .shown_default("2 with interleaved and zbv, else 1")
        .peers({"num-virtual-stages-per-pipeline-rank", "virtual-pipeline-parallel", "num-model-chunks"});
    options
        .add_custom(
            "layout", "axis-order", one, layout.axis_order,
            [&layout](const OptionValue& value)
            {
                parse_axis_order(value.text);
                return layout.axis_order = value.text;
            },
            "which ranks are neighbours: the fastest axis first")
        .value_name("tp,cp,ep,dp,pp")
        .peers({"order", "dp-tp-order", "tp-comm-order"});
    options.add_flag("layout", "tp-across-nodes", layout.tp_across_nodes,
                     "accept tensor parallel groups that lie on several nodes");
    options
        .add_custom(
            "layout", "pp-split", one, layout.pp_split,
            [&layout](const OptionValue& value)
            { return layout.pp_split = stage_split_text(parse_stage_split(value.text)); },
            "layers of each pipeline stage; even: as many on each; auto: by time, embedding and head counted")
        .flag("pp-split")
        .value_name("even|auto|N,N,..")
        .peers({"pipeline-model-parallel-layout", "partition-method", "module-fqns-per-model-part"});
}

void declare_train_length(OptionSet& options, RunConfig::Train& train)
{
    options.add_count("train", "tokens", train.tokens, "length of the run; or steps, or epochs")
        .unit("tokens")
        .flag("tokens")
        .range(1)
        .no_default()
        .peers({"train-tokens", "token-budget"});
    options.add_count("train", "steps", train.steps, "length of the run; or tokens, or epochs")
        .unit("optimizer steps")
        .flag("steps")
        .range(1)
        .no_default()
        .peers({"train-iters", "train-steps", "training.steps", "max-steps", "num-train-steps", "num-iterations"});
    options.add_number("train", "epochs", train.epochs, "length of the run; or tokens, or steps")
        .unit("passes over the data")
        .flag("epochs")
        .range(0)
        .no_default()
        .peers({"num-train-epochs", "num-epochs"});
}

void declare_optimizer(OptionSet& options, RunConfig::Train& train)
{
    options
        .add_choice("train", "optimizer", train.optimizer, {"adamw", "adam", "sgd", "muon", "lion"},
                    "kind of optimizer")
        .flag("optimizer")
        .peers({"optimizer.name", "optimizer-name"});
    options
        .add_custom(
            "train", "betas", list, fmt::format("{} {}", train.beta1, train.beta2),
            [&train](const OptionValue& value)
            {
                VALIDATE(value.words.size() == 2, ConfigError, "'{}' is not two numbers (such as 0.9 0.95)",
                         value.text);
                const double first = parse_number(value.words[0]);
                const double second = parse_number(value.words[1]);
                VALIDATE(first >= 0 && first < 1 && second >= 0 && second < 1, ConfigError,
                         "'{}' is out of range (each at least 0 and less than 1)", value.text);
                train.beta1 = first;
                train.beta2 = second;
                return fmt::format("{} {}", first, second);
            },
            "averaging of gradient and squared gradient")
        .flag("betas")
        .value_name("X X");
    options.add_number("train", "eps", train.eps, "added to the root of the second moment")
        .flag("eps")
        .range(0)
        .peers({"adam-eps", "optimizer.eps"});
    options.add_number("train", "weight-decay", train.weight_decay, "decoupled; not on biases and norms")
        .flag("weight-decay")
        .range(0)
        .peers({"wd"});
    options.add_number("train", "clip", train.clip, "largest global gradient norm; 0: off")
        .flag("clip")
        .range(0)
        .peers({"clip-grad", "gradient-clipping", "max-norm", "training.max-norm", "grad-clip", "max-grad-norm"});
    for (const char* key : {"tensors", "kind", "lr", "betas", "eps", "weight-decay"})
    {
        add_planned(options, "optimizer", key, "[optimizer.NAME]: own settings for matching tensors");
    }
    options.add_named_sections("optimizer",
                               [](OptionSet& set, const std::string& name)
                               {
                                   for (const char* key : {"tensors", "kind", "lr", "betas", "eps", "weight-decay"})
                                   {
                                       add_planned(set, "optimizer." + name, key, "own settings for matching tensors");
                                   }
                                   limit_run_config(set);
                               });
}

void declare_schedule(OptionSet& options, RunConfig::Train& train)
{
    options.add_number("train", "lr", train.lr, "peak learning rate")
        .flag("lr")
        .range(0)
        .no_default()
        .peers({"learning-rate", "optimizer.lr", "max-lr"});
    const auto min_lr = std::make_shared<RelativeValue>();
    options
        .add_custom(
            "train", "min-lr", one, "0",
            [min_lr](const OptionValue& value)
            {
                *min_lr = parse_relative(value.text);
                VALIDATE(min_lr->amount >= 0, ConfigError, "{} is too small (at least 0)", value.text);
                return number_text(min_lr->amount) + (min_lr->relative ? "x" : "");
            },
            "learning rate at the end, absolute or a share of lr (0.1x)")
        .flag("min-lr")
        .value_name("X|0.1x")
        .peers({"lr-min", "min-decay-lr", "lr-scheduler.min-lr-factor", "cooldown-min-lr"});
    options.on_parsed([min_lr, &train] { train.min_lr = min_lr->of(train.lr); });
    options.add_choice("train", "schedule", train.schedule, {"cosine", "wsd", "constant"}, "shape of the learning rate")
        .flag("schedule")
        .peers({"lr-decay-style", "lr-scheduler.decay-type", "lr-scheduler-type", "lr-schedule"});
    options.add_span("train", "warmup", train.warmup, "linear rise of the learning rate")
        .flag("warmup")
        .peers({"lr-warmup-iters", "lr-warmup-samples", "lr-warmup-fraction", "warmup-num-steps", "lr-warmup-steps",
                "warmup-steps", "lr-scheduler.warmup-steps", "warmup-iters"});
    options.add_span("train", "decay", train.decay, "fall at the end (wsd)")
        .flag("decay")
        .peers(
            {"lr-wsd-decay-iters", "lr-decay-iters", "lr-decay-steps", "cooldown-iters", "lr-scheduler.decay-ratio"});
}

/// none | full | every:N | selective:LIST | auto
std::string check_recompute(const std::string& text)
{
    if (text == "none" || text == "full" || text == "auto") { return text; }
    if (text.rfind("every:", 0) == 0 && parse_count(text.substr(6)) > 0) { return text; }
    if (text.rfind("selective:", 0) == 0 && text.size() > 10) { return text; }
    throw ConfigError(fmt::format("'{}' is not a policy (none full every:2 selective:norm,activation auto)", text));
}

/// A share that may not be the whole.
Option& add_share(OptionSet& options, const std::string& key, double& target, const std::string& help)
{
    return options
        .add_custom(
            "train", key, one, "0",
            [&target](const OptionValue& value)
            {
                target = parse_number(value.text);
                VALIDATE(target >= 0 && target < 1, ConfigError, "{} is out of range (at least 0 and less than 1)",
                         value.text);
                return number_text(target);
            },
            help)
        .flag(key)
        .value_name("X");
}

void declare_loss(OptionSet& options, RunConfig::Train& train)
{
    add_share(options, "label-smoothing", train.label_smoothing,
              "share of the target that is spread over the whole vocabulary; validation goes without")
        .peers({"label-smoothing-factor"});
    options.add_number("train", "z-loss", train.z_loss, "factor of log-sum-exp squared in the loss; validation goes without")
        .flag("z-loss")
        .range(0)
        .peers({"z-loss-multiplier", "auxiliary-loss-multiplier"});
}

void declare_dropout(OptionSet& options, RunConfig::Train& train)
{
    add_share(options, "hidden-dropout", train.hidden_dropout,
              "probability of dropping an element of a branch before the residual is added; not in validation")
        .peers({"resid-pdrop", "residual-dropout", "dropout"});
    add_share(options, "embedding-dropout", train.embedding_dropout,
              "probability of dropping an element after the embedding; not in validation")
        .peers({"embd-pdrop", "embd-dropout"});
    add_share(options, "attention-dropout", train.attention_dropout, "probability of dropping an attention weight")
        .peers({"attn-pdrop", "attn-dropout"});
}

void declare_execution(OptionSet& options, RunConfig::Train& train)
{
    options
        .add_choice("train", "precision", train.precision, {"fp64", "fp32", "bf16", "fp16", "fp8"},
                    "of parameters and activations; bf16 is updated and summed up in fp32")
        .flag("precision")
        .peers({"dtype", "params-dtype", "mixed-precision", "training.mixed-precision-param", "mixed-precision-param"});
    options
        .add_custom(
            "train", "recompute", one, train.recompute,
            [&train](const OptionValue& value) { return train.recompute = check_recompute(value.text); },
            "activations to compute again in backward")
        .flag("recompute")
        .value_name("POLICY")
        .peers({"recompute-granularity", "recompute-method", "recompute-activations", "activation-checkpoint.mode",
                "activation-checkpointing", "recompute-layer", "gradient-checkpointing"});
    options
        .add_count("train", "loss-chunks", train.loss_chunks, "parts of the logits that the loss computes one by one")
        .flag("loss-chunks")
        .shown_default("parts of at most 64 MiB")
        .peers({"num-output-chunks", "cross-entropy-chunks"});
    options
        .add_count("train", "check-replicas-every", train.check_replicas_every,
                   "compare what ranks hold in copies, tensor by tensor; a difference ends the run; 0: never")
        .unit("steps")
        .flag("check-replicas-every")
        .range(0)
        .peers({"check-weight-hash-across-dp-replicas-interval"});
}

void declare_checkpoint(OptionSet& options, RunConfig::Checkpoint& checkpoint)
{
    options.add_span("checkpoint", "every", checkpoint.every, "distance of saves; the end of the run is always saved")
        .peers({"save-interval", "checkpoint.interval", "checkpoint-interval", "save-every", "save-steps",
                "ckpt-interval"});
    options.add_count("checkpoint", "keep-last", checkpoint.keep_last, "saves to keep; 0: all")
        .flag("keep-last")
        .peers({"keep-latest-k", "checkpoint.keep-latest-k", "max-checkpoint-keep", "save-total-limit"});
    options
        .add_custom(
            "checkpoint", "resume", one, "auto",
            [&checkpoint](const OptionValue& value)
            {
                const bool word = value.text == "auto" || value.text == "never";
                return checkpoint.resume = word ? value.text : resolve_path(value.text, value.directory);
            },
            "auto: newest step of the run; never: start anew; DIR: full state from elsewhere, while the run has none")
        .flag("resume")
        .value_name("auto|never|DIR")
        .peers({"load", "resume-checkpoint-path", "checkpoint.initial-load-path", "initial-load-path",
                "resume-from-checkpoint", "load-checkpoint"});
    options
        .add_choice("checkpoint", "on-save-failure", checkpoint.on_save_failure, {"warn", "stop"},
                    "what a failed save means")
        .flag("on-save-failure");
}

}  // namespace

void declare_run_config(OptionSet& options, RunConfig& config)
{
    declare_run(options, config.run);
    declare_model(options, config.model);
    declare_layout(options, config.layout);
    declare_pipeline(options, config.layout);
    declare_data(options, config.data);
    declare_train_length(options, config.train);
    declare_optimizer(options, config.train);
    declare_schedule(options, config.train);
    declare_loss(options, config.train);
    declare_dropout(options, config.train);
    declare_execution(options, config.train);
    declare_eval(options, config.eval);
    declare_checkpoint(options, config.checkpoint);
    options.add_path("cluster", "file", config.cluster.file, "device memory, devices per node, links and peaks (JSON)")
        .flag("cluster");
    options
        .add_bytes("cluster", "memory-limit", config.cluster.memory_limit, "memory that one rank may use")
        .flag("memory-limit")
        .range(1)
        .no_default()
        .shown_default("of the cluster file, else the machine's / local ranks")
        .peers({"max-memory", "memory-limit-bytes", "gpu-memory"});
    add_run_config_hints(options);
    limit_run_config(options);
}

}  // namespace plimsoll
