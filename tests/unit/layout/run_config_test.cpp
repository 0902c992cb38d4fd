#include "layout/run_config.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <set>

#include "layout/model_files.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

using namespace plimsoll;
using plimsoll::testing::expect_error;
using plimsoll::testing::TempDir;

namespace
{

using Words = std::vector<std::string>;

struct Parsed
{
    RunConfig config;
    OptionSet options;

    Parsed() { declare_run_config(options, config); }
    explicit Parsed(const Words& arguments) : Parsed() { options.parse(arguments); }
};

void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

/// The example of the documentation, without what this version refuses.
const char* const demo = R"(# jobs/demo.ini
[run]
name = demo                               # -> runs/demo
seed = 7

[model]
name = models/tiny.json

[layout]
dp = auto                                 # world / (tp pp cp)
tp = 1
micro-batch = 4
global-batch = 32                         # sequences

[data]
seq-len = 256
[data.kjv]
shards = $PLIMSOLL_TEST_SCRATCH/kjv/*.h5
weight = 1.0

[train]
tokens = 500K
betas = 0.9 0.99
lr = 6e-4
min-lr = 0.1x
schedule = wsd
warmup = 2%
decay = 20%
precision = fp32

[eval]
shards = $PLIMSOLL_TEST_SCRATCH/kjv/validation/*.h5
every = 50
tokens = all

[checkpoint]
every = 50
keep-last = 2
)";

/// A directory with the demo's files.
class DemoFiles
{
  public:
    DemoFiles()
    {
        for (const char* folder : {"jobs", "jobs/models", "kjv", "kjv/validation"})
        {
            std::filesystem::create_directory(dir_ / folder);
        }
        for (const char* file : {"kjv/b.h5", "kjv/a.h5", "kjv/validation/v.h5", "jobs/models/tiny.json"})
        {
            write(dir_ / file, "{}");
        }
        write(dir_ / "jobs/demo.ini", demo);
        ::setenv("PLIMSOLL_TEST_SCRATCH", dir_.path().c_str(), 1);
    }
    ~DemoFiles() { ::unsetenv("PLIMSOLL_TEST_SCRATCH"); }
    std::string operator/(const std::string& name) const { return dir_ / name; }

  private:
    TempDir dir_;
};

RunConfig valid_config()
{
    RunConfig config;
    config.train.steps = 10;
    config.train.lr = 1e-3;
    config.layout.global_batch = 8;
    config.data.seq_len = 16;
    config.data.sources.emplace_back();
    return config;
}

}  // namespace

TEST(RunConfig, TheDemoFileIsRead)
{
    const DemoFiles files;
    const Parsed p({"--config", files / "jobs/demo.ini"});
    const RunConfig& c = p.config;
    EXPECT_EQ(c.run.name, "demo");
    EXPECT_EQ(c.run.dir, (std::filesystem::current_path() / "runs/demo").string());
    EXPECT_EQ(c.run.seed, 7u);
    EXPECT_EQ(c.model.name, files / "jobs/models/tiny.json");
    EXPECT_EQ(c.layout.dp, 0);
    EXPECT_EQ(c.layout.global_batch, 32);
    ASSERT_EQ(c.data.sources.size(), 1u);
    EXPECT_EQ(c.data.sources[0].name, "kjv");
    EXPECT_EQ(c.data.sources[0].shards, (Words{files / "kjv/a.h5", files / "kjv/b.h5"}));
    EXPECT_EQ(c.train.tokens, 500000);
    EXPECT_EQ(c.train.beta2, 0.99);
    EXPECT_DOUBLE_EQ(c.train.min_lr, 6e-5);
    EXPECT_EQ(c.train.decay.unit, Span::Unit::percent);
    EXPECT_EQ(c.eval.shards, Words{files / "kjv/validation/v.h5"});
    EXPECT_EQ(c.eval.tokens, -1);
    EXPECT_EQ(c.checkpoint.keep_last, 2);
    EXPECT_NO_THROW(validate_run_config(c));
}

TEST(RunConfig, TheSnapshotIsTheSameRunFromAnywhere)
{
    const DemoFiles files;
    const Parsed first({"--config", files / "jobs/demo.ini", "--lr", "3e-4", "--run.dir", files / "out"});
    write(files / "run.ini", first.options.snapshot());
    ::unsetenv("PLIMSOLL_TEST_SCRATCH");
    const Parsed second({"--config", files / "run.ini"});
    EXPECT_EQ(second.options.snapshot(), first.options.snapshot());
    EXPECT_EQ(second.config.data.sources[0].shards, first.config.data.sources[0].shards);
    EXPECT_DOUBLE_EQ(second.config.train.min_lr, 3e-5);
    EXPECT_EQ(second.config.run.dir, files / "out");
}

TEST(RunConfig, AToolThatMakesTheDataReadsTheSameFile)
{
    const DemoFiles files;
    std::filesystem::remove_all(files / "kjv");
    std::filesystem::remove_all(files / "jobs/models");
    expect_error<ConfigError>(
        [&] {
            Parsed({"--config", files / "jobs/demo.ini", "--model", "gpt2"});
        },
        (files / "jobs/demo.ini") + ":32: shards: no file matches '" + (files / "kjv/validation/*.h5") + "'");
    Parsed shard;
    shard.options.use_sections({"run"});
    EXPECT_NO_THROW(shard.options.parse({"--config", files / "jobs/demo.ini"}));
    EXPECT_EQ(shard.config.run.seed, 7u);
}

TEST(RunConfig, WhatIsNotBuiltIsRefusedByName)
{
    struct Row
    {
        Words arguments;
        const char* message;
    };
    const Row rows[] = {
        {{"--cp", "2"}, "cp 2 is not available in this version (only cp 1). use a shorter seq-len"},
        {{"--ep", "2"}, "ep 2 is not available in this version (only ep 1)"},
        {{"--precision", "fp8"}, "precision fp8 is not available in this version (only precision fp32 or fp64 or bf16)"},
        {{"--recompute", "every:2"},
         "recompute every:2 is not available in this version (only recompute none). a smaller micro-batch needs less "
         "memory"},
        {{"--optimizer", "muon"}, "optimizer muon is not available in this version (only optimizer adamw)"},
        {{"--model.init-from", "x"}, "init-from in [model] is not available in this version"},
        {{"--model.trainable", "*.norm"}, "trainable in [model] is not available in this version. all tensors learn"},
        {{"--lora.rank", "8"}, "rank in [lora] is not available in this version. all tensors learn"},
        {{"--optimizer.norms.lr", "1"},
         "lr in [optimizer.norms] is not available in this version. settings for all tensors stand in [train]: use --lr"},
    };
    for (const Row& row : rows)
    {
        expect_error<ConfigError>([&] { Parsed p(row.arguments); }, row.message);
    }
}

TEST(RunConfig, SeveralSourcesAndValidationSetsAreRead)
{
    const TempDir dir;
    for (const char* file : {"a.h5", "b.h5", "v.h5", "w.h5"}) { write(dir / file, ""); }
    write(dir / "run.ini", "[data]\nshuffle = window:64M\n[data.web]\nshards = *.h5\nweight = 3\n[data.old]\nshards = megatron:x/text\n"
                           "vocab = 50257\nmax-epochs = 2.5\n[eval]\nshards = v.h5\nevery = 50\ntokens = 1000\n[eval.web]\n"
                           "shards = w.h5\n[eval.code]\nshards = megatron:y\nevery = 2%\ntokens = all\n");
    const Parsed p({"--config", dir / "run.ini"});
    const RunConfig& c = p.config;
    EXPECT_EQ(c.data.shuffle.kind, Shuffle::Kind::window);
    EXPECT_EQ(c.data.shuffle.window_tokens, 64'000'000);
    ASSERT_EQ(c.data.sources.size(), 2u);
    EXPECT_EQ(c.data.sources[0].shards.size(), 4u);
    EXPECT_EQ(c.data.sources[0].weight, 3);
    EXPECT_EQ(c.data.sources[1].shards, Words{"megatron:" + (dir / "x/text")});
    EXPECT_EQ(c.data.sources[1].vocab, 50257);
    EXPECT_EQ(c.data.sources[1].max_epochs, 2.5);
    EXPECT_EQ(c.eval.shards, Words{dir / "v.h5"});
    ASSERT_EQ(c.eval.sets.size(), 2u);
    EXPECT_EQ(c.eval.sets[0].name, "web");
    EXPECT_EQ(c.eval.sets[0].tokens, 1000) << "as in [eval]";
    EXPECT_EQ(c.eval.sets[0].every.unit, Span::Unit::steps);
    EXPECT_EQ(c.eval.sets[0].every.amount, 50);
    EXPECT_EQ(c.eval.sets[1].tokens, -1);
    EXPECT_EQ(c.eval.sets[1].every.unit, Span::Unit::percent);
    EXPECT_TRUE(c.eval.is_planned());
    EXPECT_FALSE(RunConfig().eval.is_planned());

    write(dir / "again.ini", p.options.snapshot());
    const Parsed again({"--config", dir / "again.ini"});
    EXPECT_EQ(again.options.snapshot(), p.options.snapshot());
}

TEST(RunConfig, FaultyDataSectionsAreRefused)
{
    struct Row
    {
        Words arguments;
        const char* message;
    };
    const Row rows[] = {
        {{"--data.shuffle", "some"}, "--data.shuffle: 'some' is no order (global, none, or window:N with N tokens)"},
        {{"--data.shuffle", "window:0"}, "--data.shuffle: 'window:0' is an empty window (at least 1 token)"},
        {{"--data.a.weight", "0"}, "--data.a.weight: 0 is too small (more than 0)"},
        {{"--data.a.weight", "2"}, "[data.a] has no shards. set shards in [data.a]"},
        {{"--data.a.max-epochs", "0"}, "--data.a.max-epochs: 0 is too small (more than 0)"},
        {{"--data.a.vocab", "0"}, "--data.a.vocab: 0 is too small (at least 1)"},
        {{"--data.a.shards", "megatron:"},
         "--data.a.shards: 'megatron:' names no files (megatron:PREFIX reads PREFIX.bin and PREFIX.idx)"},
        {{"--data.fim-rate", "1.5"}, "--data.fim-rate: 1.5 is too large (at most 1)"},
        {{"--data.fim-tokens", "1", "2"}, "--data.fim-tokens: '1 2' is not three ids (of the prefix, suffix and middle mark)"},
        {{"--data.fim-tokens", "1", "2", "1"}, "--data.fim-tokens: '1 2 1' names an id twice"},
        {{"--eval.web.every", "5"}, "[eval.web] has no shards. set shards in [eval.web]"},
    };
    for (const Row& row : rows)
    {
        expect_error<ConfigError>([&] { Parsed p(row.arguments); }, row.message);
    }
}

TEST(RunConfig, ValuesOutsideTheDesignAreRefused)
{
    struct Row
    {
        Words arguments;
        const char* message;
    };
    const Row rows[] = {
        {{"--zero", "7"}, "--zero: 7 is too large (at most 3)"},
        {{"--precision", "bf17"}, "--precision: 'bf17' is not one of fp64 fp32 bf16 fp16 fp8. nearest: bf16"},
        {{"--recompute", "some"},
         "--recompute: 'some' is not a policy (none full every:2 selective:norm,activation auto)"},
        {{"--betas", "0.9"}, "--betas: '0.9' is not two numbers (such as 0.9 0.95)"},
        {{"--betas", "0.9", "1"}, "--betas: '0.9 1' is out of range (each at least 0 and less than 1)"},
        {{"--label-smoothing", "1"}, "--label-smoothing: 1 is out of range (at least 0 and less than 1)"},
        {{"--label-smoothing", "-0.1"}, "--label-smoothing: -0.1 is out of range (at least 0 and less than 1)"},
        {{"--hidden-dropout", "1"}, "--hidden-dropout: 1 is out of range (at least 0 and less than 1)"},
        {{"--embedding-dropout", "1.5"}, "--embedding-dropout: 1.5 is out of range (at least 0 and less than 1)"},
        {{"--attention-dropout", "0.1"},
         "attention-dropout 0.1 is not available in this version (only attention-dropout 0). fused "
         "attention kernels refuse it or mask in an order of their own; use hidden-dropout"},
        {{"--check-replicas-every", "-1"}, "--check-replicas-every: -1 is negative"},
        {{"--z-loss", "-1e-4"}, "--z-loss: -0.0001 is too small (at least 0)"},
        {{"--eval.tokens", "0"}, "--eval.tokens: 0 is too small (at least 1)"},
        {{"--dp", "0"}, "--dp: 0 is too small (at least 1)"},
        {{"--data.weight", "0"}, "--data.weight: 0 is too small (more than 0)"},
        {{"--data.kjv.weight", "1"}, "[data.kjv] has no shards. set shards in [data.kjv]"},
        {{"--run.name", "a/b"}, "run.name 'a/b' is not a name (it becomes a folder). use letters, digits, '-' and '_'"},
        {{"--min-lr", "-1"}, "--min-lr: -1 is too small (at least 0)"},
        {{"--seq-len", "0"}, "--seq-len: 0 is too small (at least 1)"},
        {{"--on-save-failure", "ignore"}, "--on-save-failure: 'ignore' is not one of warn stop. nearest: warn"},
    };
    for (const Row& row : rows)
    {
        expect_error<ConfigError>([&] { Parsed p(row.arguments); }, row.message);
    }
}

TEST(RunConfig, OtherToolkitsWordsAreAnsweredWithOurs)
{
    const std::pair<const char*, const char*> rows[] = {
        {"tensor-model-parallel-size", "--tp"},
        {"pipeline-model-parallel-size", "--pp"},
        {"context-parallel-size", "--cp"},
        {"expert-model-parallel-size", "--ep"},
        {"micro-batch-size", "--micro-batch"},
        {"train_micro_batch_size_per_gpu", "--micro-batch"},
        {"global-batch-size", "--global-batch"},
        {"train-iters", "--steps"},
        {"training.steps", "--steps"},
        {"seq-length", "--seq-len"},
        {"train-samples", "--tokens (samples x seq-len) or --steps"},
        {"lr-warmup-iters", "--warmup"},
        {"lr-decay-style", "--schedule"},
        {"clip-grad", "--clip"},
        {"save-interval", "--checkpoint.every"},
        {"load", "--resume"},
        {"save", "[run] dir: checkpoints are written below it"},
        {"eval-interval", "--eval.every"},
        {"log-interval", "--log-every"},
        {"use-distributed-optimizer", "--zero 1"},
        {"zero-stage", "--zero"},
        {"bf16", "--precision bf16"},
        {"recompute-granularity", "--recompute"},
        {"gradient_accumulation_steps", "--global-batch: accumulation is global-batch / (dp x micro-batch)"},
        {"data-path", "--data.shards"},
        {"parallelism.tensor_parallel_degree", "--tp"},
    };
    for (const auto& row : rows)
    {
        const std::string option = std::string("--") + row.first;
        const std::string message =
            std::string("unknown option '") + option + "' (another toolkit's name). use " + row.second;
        expect_error<UsageError>([&] { Parsed p({option, "1"}); }, message);
    }
}

TEST(RunConfig, NamesMeanOneThing)
{
    Parsed p;
    std::set<std::string> names;
    std::set<std::string> ours;
    for (const Option* option : p.options.all())
    {
        EXPECT_TRUE(names.insert(option->name()).second) << option->name();
        if (!option->flag_name().empty())
        {
            EXPECT_TRUE(names.insert(option->flag_name()).second) << option->flag_name();
        }
        EXPECT_FALSE(option->help_text().empty()) << option->name();
    }
    EXPECT_NO_THROW(p.options.parse({}));
}

TEST(RunConfig, EveryFlagAndKeyOfTheUserGuideExists)
{
    Parsed p;
    for (const char* name : {"tp",
                             "pp",
                             "dp",
                             "zero",
                             "micro-batch",
                             "global-batch",
                             "seq-len",
                             "lr",
                             "min-lr",
                             "steps",
                             "tokens",
                             "epochs",
                             "seed",
                             "device",
                             "precision",
                             "recompute",
                             "loss-chunks",
                             "label-smoothing",
                             "z-loss",
                             "hidden-dropout",
                             "embedding-dropout",
                             "check-replicas-every",
                             "deterministic",
                             "warmup",
                             "decay",
                             "schedule",
                             "clip",
                             "betas",
                             "eps",
                             "weight-decay",
                             "optimizer",
                             "resume",
                             "keep-last",
                             "on-save-failure",
                             "signal-usr1",
                             "log-every",
                             "model",
                             "cluster",
                             "run.name",
                             "run.dir",
                             "eval.every",
                             "eval.shards",
                             "checkpoint.every",
                             "data.shards",
                             "data.weight"})
    {
        EXPECT_NO_THROW(p.options.at(name)) << name;
    }
}

TEST(RunConfig, ModelsAreFilesFoldersOrKnownNames)
{
    const TempDir dir;
    std::filesystem::create_directories(dir / "hf");
    std::filesystem::create_directories(dir / "empty");
    std::filesystem::create_directories(dir / "known");
    write(dir / "hf/config.json", "{}");
    write(dir / "known/tiny-1m.json", "{}");
    ::setenv("PLIMSOLL_MODELS", (dir / "known").c_str(), 1);
    EXPECT_EQ(find_model("hf", dir.path()), dir / "hf/config.json");
    EXPECT_EQ(find_model("hf/config.json", dir.path()), dir / "hf/config.json");
    EXPECT_EQ(find_model("tiny-1m", dir.path()), dir / "known/tiny-1m.json");
    EXPECT_EQ(find_model("gpt2", dir.path()), std::string(PLIMSOLL_SOURCE_DIR) + "/jobs/models/gpt2.json");
    expect_error<ConfigError>([&] { find_model("empty", dir.path()); },
                              "'" + (dir / "empty") + "' is a folder without config.json");
    try
    {
        find_model("tiny-2m", dir.path());
        FAIL();
    }
    catch (const ConfigError& error)
    {
        const std::string text = error.what();
        EXPECT_EQ(text.find("model 'tiny-2m' is neither a file (looked for '" + (dir / "tiny-2m") +
                            "') nor a known model ("),
                  0u)
            << text;
        EXPECT_NE(text.find("gpt2"), std::string::npos);
        EXPECT_EQ(text.substr(text.size() - 16), "nearest: tiny-1m") << text;
    }
    ::unsetenv("PLIMSOLL_MODELS");
}

TEST(RunConfigRules, AGoodOnePasses) { EXPECT_NO_THROW(validate_run_config(valid_config())); }

TEST(RunConfigRules, ALengthIsGivenOnce)
{
    RunConfig config = valid_config();
    config.train.tokens = 500;
    expect_error<ConfigError>([&] { validate_run_config(config); },
                              "the run has 2 lengths (tokens 500, steps 10). keep one");
    config.train.tokens = 0;
    config.train.steps = 0;
    expect_error<ConfigError>([&] { validate_run_config(config); },
                              "the run has no length. set one of tokens, steps, epochs in [train]");
}

TEST(RunConfigRules, AllFaultsAreNamedAtOnce)
{
    RunConfig config = valid_config();
    config.train.min_lr = 0.5;
    config.train.warmup = parse_span("60%");
    config.train.decay = parse_span("50%");
    config.data.sources.clear();
    config.eval.every = parse_span("50");
    expect_error<ConfigError>(
        [&] { validate_run_config(config); },
        "min-lr 0.5 is above lr 0.001; warmup 60% + decay 50% = 110% of the run (more than all of it); "
        "there is no training data. set shards in [data.NAME]; eval.every is set, eval.shards is not "
        "(nothing to validate on). set shards in [eval]");
}

TEST(RunConfigRules, FimNeedsItsMarks)
{
    RunConfig config = valid_config();
    config.data.fim.rate = 0.5;
    expect_error<ConfigError>(
        [&] { validate_run_config(config); },
        "data.fim-rate is set, data.fim-tokens is not (ids of the prefix, suffix and middle mark). set fim-tokens in [data]");
    config.data.fim.prefix = 1;
    EXPECT_NO_THROW(validate_run_config(config));
}

TEST(RunConfig, DeterministicRefusesWhatWouldChangeBits)
{
    RunConfig config;
    config.train.steps = 1;
    config.data.sources.emplace_back();
    config.run.deterministic = true;
    config.run.threads = 2;
    EXPECT_NO_THROW(validate_run_config(config));
    config.run.threads = 0;
    expect_error<ConfigError>(
        [&] { validate_run_config(config); },
        "run.deterministic needs run.threads (by default a rank takes its share of the machine's cores, and matrix products are "
        "cut, and so rounded, by the number of threads). set threads in [run]");
    config.run.threads = 2;
    config.run.device = "cuda";
    expect_error<ConfigError>(
        [&] { validate_run_config(config); },
        "run.deterministic is for device cpu (NCCL and CUDA kernels choose the order of their sums)");
}

TEST(ResumeRules, FollowTheKindOfKey)
{
    const std::pair<const char*, ResumeRule> rows[] = {
        {"layout.tp", ResumeRule::free},          {"layout.micro-batch", ResumeRule::free},
        {"run.device", ResumeRule::free},         {"run.log-every", ResumeRule::free},
        {"run.name", ResumeRule::free},           {"checkpoint.every", ResumeRule::free},
        {"data.web.weight", ResumeRule::guarded}, {"data.web.max-epochs", ResumeRule::run_file},
        {"data.shuffle", ResumeRule::guarded},    {"eval.web.every", ResumeRule::free},
        {"eval.every", ResumeRule::free},         {"train.loss-chunks", ResumeRule::free},
        {"train.recompute", ResumeRule::free},    {"train.lr", ResumeRule::run_file},
        {"train.min-lr", ResumeRule::run_file},   {"train.schedule", ResumeRule::run_file},
        {"train.warmup", ResumeRule::run_file},   {"train.steps", ResumeRule::run_file},
        {"train.tokens", ResumeRule::run_file},   {"train.weight-decay", ResumeRule::run_file},
        {"model.name", ResumeRule::guarded},      {"data.kjv.shards", ResumeRule::guarded},
        {"data.seq-len", ResumeRule::guarded},    {"layout.global-batch", ResumeRule::guarded},
        {"run.seed", ResumeRule::guarded},        {"train.optimizer", ResumeRule::guarded},
        {"train.hidden-dropout", ResumeRule::run_file}, {"train.check-replicas-every", ResumeRule::free},
        {"train.label-smoothing", ResumeRule::run_file}, {"train.z-loss", ResumeRule::run_file},
        {"train.precision", ResumeRule::guarded}, {"unheard.of", ResumeRule::guarded},
    };
    for (const auto& row : rows) { EXPECT_EQ(resume_rule(row.first), row.second) << row.first; }
}

TEST(ResumeRules, EveryKeyHasOne)
{
    Parsed p;
    for (const Option* option : p.options.all())
    {
        const std::string section = option->section();
        if (section == "model" || section == "data" || section == "lora") { continue; }
        if (resume_rule(option->name()) != ResumeRule::guarded) { continue; }
        const std::set<std::string> guarded = {"run.seed", "layout.global-batch", "train.optimizer", "train.precision"};
        EXPECT_EQ(guarded.count(option->name()), 1u) << option->name();
    }
}
