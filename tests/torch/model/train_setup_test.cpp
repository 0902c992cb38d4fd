// What a run checks before it starts, with shards made by hand: another tokenizer, a loss mask, another model.

#include "nn/train_setup.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.hpp"
#include "torch/model/small_run.hpp"

using namespace plimsoll;
using namespace plimsoll::nn;

namespace
{

constexpr const char* config_json = R"({"model_type":"llama","vocab_size":37,"hidden_size":32,"intermediate_size":48,
    "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"max_position_embeddings":64,
    "rms_norm_eps":1e-6,"rope_theta":10000.0,"hidden_act":"silu","tie_word_embeddings":false})";

class TrainSetupTest : public testing::Test
{
  protected:
    void SetUp() override
    {
        folder_ = std::filesystem::temp_directory_path() / ("train_setup_" + std::to_string(getpid()));
        std::filesystem::create_directories(folder_);
        std::ofstream(folder_ / "model.json") << config_json;
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }

    /// One document of 200 tokens; with a mask, only every third token may be learned.
    std::string shard(const std::string& name, const std::string& fingerprint, bool masked = false)
    {
        const std::string path = (folder_ / name).string();
        TokenShardWriter writer(path, 37, "made-up", fingerprint, masked);
        std::vector<std::uint32_t> tokens;
        std::vector<std::uint8_t> mask;
        for (std::uint32_t i = 0; i < 200; ++i)
        {
            tokens.push_back(i * 7 % 37);
            mask.push_back(i % 3 == 0 ? 1 : 0);
        }
        writer.add_document(tokens.data(), 200, 200, masked ? mask.data() : nullptr);
        writer.finish();
        return path;
    }

    RunConfig config(const std::string& shard_path) const
    {
        RunConfig made;
        made.model.name = (folder_ / "model.json").string();
        made.layout.micro_batch = 1;
        made.layout.global_batch = 2;
        made.data.seq_len = 16;
        made.data.sources.resize(1);
        made.data.sources[0].shards = {shard_path};
        made.train.steps = 4;
        made.train.lr = 1e-3;
        made.train.schedule = "constant";
        return made;
    }

    static CheckpointMeta meta_of(const TrainSetup& setup)
    {
        CheckpointMeta meta;
        meta.model_fingerprint = model_fingerprint(setup.model);
        meta.trainer.tokenizer = setup.fingerprint();
        meta.trainer.plan_hash = setup.order->plan_hash();
        return meta;
    }

    std::filesystem::path folder_;
};

const std::string tokenizer_a(64, 'a'), tokenizer_b(64, 'b');

}  // namespace

TEST_F(TrainSetupTest, ACheckpointOfTheSameRunIsTaken)
{
    const TrainSetup setup = prepare_training(config(shard("a.h5", tokenizer_a)), TrainOptions(), "");
    EXPECT_NO_THROW(check_resumable(setup, meta_of(setup), {}, "step_00000002"));
}

TEST_F(TrainSetupTest, ADeterministicRunIsNotResumedWithAnotherOrderOfSums)
{
    RunConfig strict = config(shard("a.h5", tokenizer_a));
    strict.run.deterministic = true;
    strict.run.threads = 1;
    TrainSetup setup = prepare_training(strict, TrainOptions(), "");
    EXPECT_NO_THROW(check_resumable(setup, meta_of(setup), {{"layout.bucket", "1MiB", "2MiB"}, {"run.log-every", "1", "2"}}, "step_2"));
    const ConfigChange change = {"run.threads", "2", "1"};
    try
    {
        check_resumable(setup, meta_of(setup), {change}, "step_2");
        FAIL() << "other threads were taken";
    }
    catch (const ConfigError& error)
    {
        EXPECT_STREQ(error.what(), "run.threads changed from '2' to '1' (run.deterministic: sums would be taken in another order from "
                                   "step_2 on). go back to it, or --allow-change run.threads");
    }
    EXPECT_THROW(check_resumable(setup, meta_of(setup), {{"layout.axis-order", "tp,cp,ep,dp,pp", "pp,tp,cp,ep,dp"}}, "step_2"),
                 ConfigError);
    setup.options.allow_change = {"run.threads"};
    EXPECT_NO_THROW(check_resumable(setup, meta_of(setup), {change}, "step_2"));
    setup.options.allow_change = {};
    setup.config.run.deterministic = false;
    EXPECT_NO_THROW(check_resumable(setup, meta_of(setup), {change}, "step_2"));
}

TEST_F(TrainSetupTest, AShardOfAnotherTokenizerIsRefused)
{
    const TrainSetup a = prepare_training(config(shard("a.h5", tokenizer_a)), TrainOptions(), "");
    TrainSetup b = prepare_training(config(shard("b.h5", tokenizer_b)), TrainOptions(), "");
    try
    {
        check_resumable(b, meta_of(a), {}, "step_00000002");
        FAIL() << "another tokenizer was taken";
    }
    catch (const ConfigError& error)
    {
        EXPECT_STREQ(error.what(),
                     "step_00000002 was trained with another tokenizer (fingerprint aaaaaaaaaaaa, the data's is "
                     "bbbbbbbbbbbb). use shards of the same tokenizer, or --allow-change data");
    }
    b.options.allow_change = {"data"};
    EXPECT_NO_THROW(check_resumable(b, meta_of(a), {}, "step_00000002"));
}

TEST_F(TrainSetupTest, EvaluationNeedsTheTokenizerOfTraining)
{
    RunConfig mixed = config(shard("a.h5", tokenizer_a));
    mixed.eval.shards = {shard("b.h5", tokenizer_b)};
    try
    {
        prepare_training(mixed, TrainOptions(), "");
        FAIL() << "two tokenizers were taken";
    }
    catch (const ConfigError& error)
    {
        EXPECT_STREQ(error.what(),
                     "eval.shards were made with tokenizer 'made-up', data with 'made-up' (fingerprints differ)");
    }
}

TEST_F(TrainSetupTest, TheLossMaskOfAShardDecidesWhichTokensCount)
{
    const TrainSetup setup = prepare_training(config(shard("m.h5", tokenizer_a, true)), TrainOptions(), "");
    test::SmallRun run(setup.model, at::kFloat, 1);
    run.settings.global_batch = 2;
    TrainStep step(*run.model, *run.params, run.groups, run.settings,
                   [&](std::int64_t first, std::int64_t num, TokenBatch& batch) { setup.order->read(first, num, batch); });
    std::int64_t expected = 0;
    for (std::int64_t position = 0; position < 2; ++position)
    {
        const std::int64_t begin = setup.order->sample_at(position) * 16;
        for (std::int64_t label = begin + 1; label <= begin + 16; ++label) { expected += label % 3 == 0 ? 1 : 0; }
    }
    const StepResult result = step.run(1, 0, 1, {[] { return false; }, 0.0});
    EXPECT_EQ(result.sums.count, expected);
    EXPECT_LT(expected, 32);
}

TEST_F(TrainSetupTest, EvaluationWithoutShardsIsRefused)
{
    RunConfig made = config(shard("a.h5", tokenizer_a));
    made.eval.every.unit = Span::Unit::steps;
    made.eval.every.amount = 2;
    try
    {
        prepare_training(made, TrainOptions(), "");
        FAIL() << "nothing to evaluate was taken";
    }
    catch (const ConfigError& error)
    {
        EXPECT_STREQ(error.what(), "eval.every is set but eval.shards is not (nothing to evaluate). set shards in [eval]");
    }
}
