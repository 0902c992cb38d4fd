// Training data at sizes that no test can hold, and from many processes at once. The systems and numbers are those of known faults of others.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <numeric>
#include <set>

#include "base/error.hpp"
#include "base/rng.hpp"
#include "io/corpus_manifest.hpp"
#include "io/file.hpp"
#include "io/token_order.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"

namespace plimsoll
{

namespace
{

class DataScale : public ::testing::Test
{
  protected:
    /// Documents of `lengths` tokens; token p of the shard is `first` + p, but the last of a document, which is `eod`.
    std::string write(const std::string& name, const std::vector<std::int64_t>& lengths, std::uint32_t first,
                      std::uint32_t eod)
    {
        TokenShardWriter writer(dir_ / name, 100'000, "numbers", "f00d");
        for (const std::int64_t length : lengths)
        {
            std::vector<std::uint32_t> ids(static_cast<std::size_t>(length));
            std::iota(ids.begin(), ids.end(), first);
            first += static_cast<std::uint32_t>(length);
            ids.back() = eod;
            writer.add_document(ids.data(), length, length);
        }
        writer.finish();
        return dir_ / name;
    }

    /// `num` small files that the manifest says hold `tokens` each: what a start sees of a large corpus.
    std::vector<std::string> claim(std::int64_t num, std::int64_t tokens)
    {
        write_file(dir_ / "0.h5", "no shard");
        CorpusManifest manifest;
        manifest.tokenizer = "numbers";
        manifest.fingerprint = "f00d";
        manifest.vocab = 100'000;
        manifest.dtype = Dtype::u32;
        std::vector<std::string> paths;
        for (std::int64_t i = 0; i < num; ++i)
        {
            const std::string name = fmt::format("{}.h5", i);
            if (i > 0) { std::filesystem::create_hard_link(dir_ / "0.h5", dir_ / name); }
            CorpusShard shard;
            shard.set = "train";
            shard.info.path = name;
            shard.info.num_tokens = tokens;
            shard.info.num_documents = tokens / 1000;
            shard.info.text_bytes = 4 * tokens;
            shard.info.file_bytes = 8;
            manifest.shards.push_back(shard);
            paths.push_back(dir_ / name);
        }
        write_file(dir_ / "manifest.json", manifest_text(manifest));
        return paths;
    }

    static OrderSettings settings_of(Shuffle::Kind kind, bool best_fit = false)
    {
        OrderSettings settings;
        settings.seq_len = 8;
        settings.seed = 3;
        settings.shuffle.kind = kind;
        settings.shuffle.window_tokens = kind == Shuffle::Kind::window ? 400 : 0;
        settings.best_fit = best_fit;
        return settings;
    }

    plimsoll::testing::TempDir dir_;
};

/// What a step reads: inputs, labels and masks one behind the other.
std::vector<std::int64_t> step_of(const TokenOrder& order, std::int64_t consumed, std::int64_t global_batch)
{
    TokenBatch batch;
    order.read(consumed, global_batch, batch);
    std::vector<std::int64_t> seen = batch.inputs;
    seen.insert(seen.end(), batch.labels.begin(), batch.labels.end());
    seen.insert(seen.end(), batch.mask.begin(), batch.mask.end());
    return seen;
}

}  // namespace

TEST_F(DataScale, TenTrillionTokensOverAThousandEpochsStayIn64Bits)
{
    // Megatron-LM 598, 507: the builder of the sample index overflowed. Megatron-LM 1672: so did pointers above 40 B tokens.
    const std::int64_t each = 100'000'000'000, num = 100, seq_len = 4096;
    const TokenSource source(claim(num, each));
    EXPECT_EQ(source.num_tokens(), num * each);
    EXPECT_EQ(source.text_bytes(), 4 * num * each);
    EXPECT_EQ(source.num_open(), 0u);
    const std::int64_t samples = (num * each - 1) / seq_len;
    for (const Shuffle::Kind kind : {Shuffle::Kind::global, Shuffle::Kind::window, Shuffle::Kind::none})
    {
        OrderSettings settings = settings_of(kind);
        settings.seq_len = seq_len;
        settings.shuffle.window_tokens = kind == Shuffle::Kind::window ? 1'000'000'000 : 0;
        const TokenOrder one({{"a", &source, 1.0}}, settings);
        const TokenOrder two({{"a", &source, 3.0}, {"b", &source, 1.0}}, settings);
        ASSERT_EQ(one.num_samples(), samples);
        for (const std::int64_t epoch : {0, 1, 999})
        {
            std::set<std::int64_t> seen;
            std::int64_t far = 0;
            for (std::int64_t i = 0; i < 64; ++i)
            {
                const SampleId id = one.id_at(epoch * samples + samples - 64 + i);
                ASSERT_EQ(id.epoch, epoch);
                ASSERT_TRUE(id.sample >= 0 && id.sample < samples && seen.insert(id.sample).second);
                far += id.sample > samples / 2 ? 1 : 0;
            }
            if (kind == Shuffle::Kind::global) { EXPECT_TRUE(far > 8 && far < 56) << far; }
        }
        const std::int64_t end = 1000 * samples;
        const std::vector<std::int64_t> counts = two.counts(end);
        EXPECT_EQ(counts[0] + counts[1], end);
        EXPECT_NEAR(static_cast<double>(counts[0]) / static_cast<double>(end), 0.75, 1e-9);
        EXPECT_GE(two.id_at(end).epoch, 400);
    }
    // A read finds its shard: the last but one token of shard 99 is looked for there and nowhere else.
    std::int64_t token = 0;
    EXPECT_NE(testing::message_of([&] { source.read(num * each - 2, 1, &token, nullptr); }).find("/99.h5: "),
              std::string::npos);
    EXPECT_NE(testing::message_of([&] { source.read(41 * each, 1, &token, nullptr); }).find("/41.h5: "),
              std::string::npos);
    EXPECT_NE(testing::message_of([&] { source.read(41 * each - 1, 1, &token, nullptr); }).find("/40.h5: "),
              std::string::npos);
}

TEST_F(DataScale, AThousandShardsOfAMillionDocumentsStartInLessThanASecond)
{
    // data.md 7.4 (viii): the start reads the manifest and opens no shard; tests/bench/many_shards.py measures the whole tool.
    const std::vector<std::string> paths = claim(1000, 1'000'000'000);
    const auto start = std::chrono::steady_clock::now();
    const TokenSource source(paths);
    const TokenOrder order(source, 4096, 1);
    EXPECT_LT(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(), 1.0);
    EXPECT_EQ(source.num_open(), 0u);
    EXPECT_EQ(source.shards()[999].num_documents, 1'000'000);
    EXPECT_EQ(order.num_samples(), (1000ll * 1'000'000'000 - 1) / 4096);
}

TEST_F(DataScale, KilledAtEveryStepTheTokensAreThoseOfAnUndisturbedRun)
{
    // Megatron-LM PR 725, llm-foundry 1277, Megatron-Bridge 4565, 4601: a run that went on repeated or skipped data, with packing
    // and with several sources too, or added its offset again in every epoch.
    const TokenSource a({write("a.h5", {30, 5, 77, 1, 40, 9, 9}, 1, 50'000)});
    const TokenSource b({write("b.h5", {12, 60}, 20'000, 50'000), write("c.h5", {33}, 30'000, 50'000)});
    for (const bool best_fit : {false, true})
    {
        for (const Shuffle::Kind kind : {Shuffle::Kind::global, Shuffle::Kind::window})
        {
            const std::vector<OrderSource> sources = {{"a", &a, 2.0}, {"b", &b, 1.0}};
            const OrderSettings settings = settings_of(kind, best_fit);
            const std::int64_t global_batch = 12, steps = 12;  // some four epochs of either
            const TokenOrder undisturbed(sources, settings);
            std::vector<std::vector<std::int64_t>> expected;
            for (std::int64_t step = 0; step < steps; ++step)
            {
                expected.push_back(step_of(undisturbed, step * global_batch, global_batch));
            }
            EXPECT_GE(undisturbed.id_at(steps * global_batch).epoch, 3);
            for (std::int64_t kill = 1; kill < steps; ++kill)
            {
                const TokenOrder again(sources, settings);
                for (std::int64_t step = kill; step < std::min(kill + 3, steps); ++step)
                {
                    ASSERT_EQ(step_of(again, step * global_batch, global_batch),
                              expected[static_cast<std::size_t>(step)])
                        << kill << " " << step << " " << best_fit;
                }
            }
        }
    }
}

TEST_F(DataScale, ThirtyTwoProcessesStartAtOnceAndWriteNothing)
{
    // OLMo-core 651, Megatron-Bridge 3886: races for a cache's directory. Megatron-LM 907, 356, 1355: a cache that rank 0 alone saw.
    const std::vector<std::string> paths = {write("a.h5", {3000, 500, 1500}, 1, 0), write("b.h5", {2500}, 40'000, 0)};
    const std::vector<std::string> before = list_directory(dir_.path());
    const auto work = [&]
    {
        const TokenSource source(paths);
        const TokenOrder order(source, 16, 5);
        std::uint64_t hash = 0;
        for (std::int64_t step = 0; step < 20; ++step)
        {
            for (const std::int64_t value : step_of(order, step * 32, 32))
            {
                hash = hash_numbers({hash, static_cast<std::uint64_t>(value)});
            }
        }
        return hash;
    };
    int channel[2] = {};
    ASSERT_EQ(::pipe(channel), 0);
    std::vector<pid_t> children;
    for (int i = 0; i < 32; ++i)
    {
        const pid_t child = ::fork();
        ASSERT_GE(child, 0);
        if (child == 0)
        {
            std::uint64_t hash = 0;
            try
            {
                hash = work();
            }
            catch (...)
            {
                ::_exit(1);
            }
            ::_exit(::write(channel[1], &hash, sizeof hash) == sizeof hash ? 0 : 1);
        }
        children.push_back(child);
    }
    ::close(channel[1]);
    std::set<std::uint64_t> hashes;
    int answers = 0;
    for (std::uint64_t hash = 0; ::read(channel[0], &hash, sizeof hash) == sizeof hash; ++answers)
    {
        hashes.insert(hash);
    }
    ::close(channel[0]);
    for (const pid_t child : children)
    {
        int status = 0;
        ::waitpid(child, &status, 0);
        EXPECT_EQ(status, 0);
    }
    EXPECT_EQ(answers, 32);
    EXPECT_EQ(hashes, std::set<std::uint64_t>{work()});
    EXPECT_EQ(list_directory(dir_.path()), before);
}

TEST_F(DataScale, TheEndOfADocumentCountsThoughPaddingHasItsId)
{
    // NeMo Automodel 1336: where padding and end were the same id, no model learned to end. Padding is masked by its place.
    const TokenSource source({write("a.h5", {5, 7, 3}, 1, 0)});
    const TokenOrder order({{"", &source, 1.0}}, settings_of(Shuffle::Kind::none));
    const EvaluationSet evaluation(source, 8, -1);
    TokenBatch batch;
    order.read(0, 1, batch);
    EXPECT_EQ(batch.labels[3], 0);
    EXPECT_EQ(batch.num_valid, 8);
    evaluation.read(0, 2, batch);
    EXPECT_EQ(batch.num_valid, 14);
    EXPECT_EQ(batch.labels[13], 0);
    EXPECT_EQ(batch.mask[13], 1) << "the last token of the last document";
    EXPECT_EQ(batch.mask[14], 0) << "padding";
    const TokenOrder packed({{"", &source, 1.0}}, settings_of(Shuffle::Kind::none, true));
    std::int64_t ends = 0;
    for (std::int64_t sample = 0; sample < packed.num_samples(); ++sample)
    {
        packed.read(sample, 1, batch);
        for (std::size_t i = 0; i < 8; ++i) { ends += batch.labels[i] == 0 && batch.mask[i] == 1 ? 1 : 0; }
    }
    EXPECT_EQ(ends, 3);
}

}  // namespace plimsoll
