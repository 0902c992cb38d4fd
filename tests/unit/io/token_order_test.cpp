#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.hpp"
#include "io/token_order.hpp"
#include "support/temp_dir.hpp"

namespace plimsoll
{

namespace
{

/// Shards whose token at global position p is p itself, so that a sample shows where it came from.
class TokenOrderTest : public ::testing::Test
{
  protected:
    static constexpr std::int64_t vocab = 1'000'000;

    std::string write(const std::string& name, std::int64_t begin, std::int64_t num,
                      const std::string& fingerprint = "f00d", const std::vector<std::uint8_t>* mask = nullptr)
    {
        TokenShardWriter writer(dir_ / name, vocab, "numbers", fingerprint, mask != nullptr);
        std::vector<std::uint32_t> ids(static_cast<std::size_t>(num));
        for (std::size_t i = 0; i < ids.size(); ++i)
        {
            ids[i] = static_cast<std::uint32_t>(begin) + static_cast<std::uint32_t>(i);
        }
        writer.add_document(ids.data(), num, 3 * num, mask != nullptr ? mask->data() : nullptr);
        writer.finish();
        return dir_ / name;
    }

    TokenSource source_of(std::int64_t num_tokens) { return TokenSource({write("s.h5", 0, num_tokens)}); }

    plimsoll::testing::TempDir dir_;
};

using Positions = std::vector<std::int64_t>;

/// The ids of the sequences of one optimizer step as `ranks` ranks take them, in the order of the contract: rank r of
/// R, micro-batch m of size u takes positions [c + (m R + r) u, + u).
Positions step_ids(const TokenOrder& order, std::int64_t consumed, std::int64_t global_batch, std::int64_t ranks)
{
    const std::int64_t per_rank = global_batch / ranks;
    const std::int64_t micro_batch = per_rank % 2 == 0 && per_rank > 1 ? 2 : 1;
    Positions ids(static_cast<std::size_t>(global_batch), -1);
    for (std::int64_t rank = 0; rank < ranks; ++rank)
    {
        for (std::int64_t m = 0; m < per_rank / micro_batch; ++m)
        {
            for (std::int64_t i = 0; i < micro_batch; ++i)
            {
                const std::int64_t position = consumed + (m * ranks + rank) * micro_batch + i;
                ids[static_cast<std::size_t>(position - consumed)] = order.sample_at(position);
            }
        }
    }
    return ids;
}

}  // namespace

TEST_F(TokenOrderTest, EveryEpochIsAPermutationAtTheSmallestSizesAndAroundPowersOfTwo)
{
    std::vector<std::int64_t> sizes = {1, 2, 3};
    for (const int bits : {2, 3, 8, 10, 16})
    {
        for (const std::int64_t off : {-1, 0, 1}) { sizes.push_back((1ll << bits) + off); }
    }
    for (const std::int64_t num : sizes)
    {
        const TokenSource source = source_of(num + 1);
        const TokenOrder order(source, 1, 7);
        ASSERT_EQ(order.num_samples(), num);
        for (const std::int64_t epoch : {0, 1, 5})
        {
            std::vector<bool> seen(static_cast<std::size_t>(num));
            for (std::int64_t i = 0; i < num; ++i)
            {
                const std::int64_t id = order.sample_at(epoch * num + i);
                ASSERT_TRUE(id >= 0 && id < num && !seen[static_cast<std::size_t>(id)]) << num << " " << epoch;
                seen[static_cast<std::size_t>(id)] = true;
            }
        }
    }
}

TEST_F(TokenOrderTest, TheStreamDoesNotDependOnTheNumberOfRanks)
{
    // data.md 7.4 (i); 1,003 samples are no multiple of 24, so that batches straddle epochs.
    const TokenSource source = source_of(10'031);
    const TokenOrder order(source, 10, 42);
    ASSERT_EQ(order.num_samples(), 1003);
    const std::int64_t steps = 3 * 1003 / 24 + 1;
    Positions expected;
    for (const std::int64_t ranks : {1, 2, 3, 4, 6, 8, 12, 24})
    {
        Positions stream;
        for (std::int64_t step = 0; step < steps; ++step)
        {
            const Positions ids = step_ids(order, step * 24, 24, ranks);
            stream.insert(stream.end(), ids.begin(), ids.end());
        }
        if (ranks == 1) { expected = stream; }
        EXPECT_EQ(stream, expected) << ranks;
    }
    for (int epoch = 0; epoch < 3; ++epoch)
    {
        Positions ids(expected.begin() + epoch * 1003, expected.begin() + (epoch + 1) * 1003);
        std::sort(ids.begin(), ids.end());
        for (std::int64_t i = 0; i < 1003; ++i) { ASSERT_EQ(ids[static_cast<std::size_t>(i)], i); }
    }
}

TEST_F(TokenOrderTest, KilledAndResumedTwiceWithOtherRanksTheStreamIsTheSame)
{
    // data.md 7.4 (ii): a resumed run knows `consumed` and nothing else.
    const TokenSource source = source_of(2'571);
    const TokenOrder undisturbed(source, 10, 3);
    for (const std::int64_t first_kill : {1, 5, 11})
    {
        Positions stream;
        std::int64_t consumed = 0;
        const std::vector<std::pair<std::int64_t, std::int64_t>> attempts = {{first_kill, 8}, {7, 3}, {12, 24}};
        for (const auto& attempt : attempts)
        {
            const TokenOrder order(source, 10, 3);
            for (std::int64_t step = 0; step < attempt.first; ++step, consumed += 24)
            {
                const Positions ids = step_ids(order, consumed, 24, attempt.second);
                stream.insert(stream.end(), ids.begin(), ids.end());
            }
        }
        for (std::size_t i = 0; i < stream.size(); ++i)
        {
            ASSERT_EQ(stream[i], undisturbed.sample_at(static_cast<std::int64_t>(i)));
        }
    }
}

TEST_F(TokenOrderTest, GoingBackAndForthOverAnEpochBorderChangesNothing)
{
    const TokenSource source = source_of(101);
    const TokenOrder order(source, 1, 1);
    const TokenOrder fresh(source, 1, 1);
    const std::int64_t late = order.sample_at(150);
    const std::int64_t early = order.sample_at(99);
    EXPECT_EQ(order.sample_at(150), late);
    EXPECT_EQ(fresh.sample_at(99), early);
    EXPECT_GE(order.sample_at(100'000'000'000'000), 0) << "positions are 64 bits wide";
}

TEST_F(TokenOrderTest, SeedsAndEpochsGiveUnrelatedOrders)
{
    const TokenSource source = source_of(5001);
    const auto matches = [&](std::uint64_t seed_a, std::int64_t epoch_a, std::uint64_t seed_b, std::int64_t epoch_b)
    {
        const TokenOrder a(source, 1, seed_a);
        const TokenOrder b(source, 1, seed_b);
        int same = 0;
        for (std::int64_t i = 0; i < 5000; ++i)
        {
            same += a.sample_at(epoch_a * 5000 + i) == b.sample_at(epoch_b * 5000 + i);
        }
        return same;
    };
    // One match is expected of two random permutations; more than 10 has a probability of about 1e-8.
    EXPECT_LE(matches(1, 0, 2, 0), 10);
    EXPECT_LE(matches(1, 0, 1, 1), 10);
    EXPECT_LE(matches(6, 0, 5, 1), 10) << "seed + epoch must not be a key";
}

TEST_F(TokenOrderTest, SamplesAreWindowsThatShareOneTokenAcrossShards)
{
    const TokenSource source({write("a.h5", 0, 7), write("b.h5", 7, 14)});
    const TokenOrder order(source, 5, 9);
    ASSERT_EQ(order.num_samples(), 4);
    TokenBatch batch;
    order.read(2, 6, batch);
    EXPECT_EQ(batch.num, 6);
    EXPECT_EQ(batch.seq_len, 5);
    EXPECT_EQ(batch.num_valid, 30);
    std::multiset<std::int64_t> labels;
    for (std::int64_t row = 0; row < 6; ++row)
    {
        const std::int64_t id = order.sample_at(2 + row);
        for (std::int64_t i = 0; i < 5; ++i)
        {
            EXPECT_EQ(batch.inputs[static_cast<std::size_t>(row * 5 + i)], id * 5 + i);
            EXPECT_EQ(batch.labels[static_cast<std::size_t>(row * 5 + i)], id * 5 + i + 1);
        }
    }
    TokenBatch epoch;
    order.read(0, 4, epoch);
    std::vector<std::int64_t> predicted = epoch.labels;
    std::sort(predicted.begin(), predicted.end());
    for (std::int64_t i = 0; i < 20; ++i) { EXPECT_EQ(predicted[static_cast<std::size_t>(i)], i + 1) << "each once"; }
}

TEST_F(TokenOrderTest, LossMaskOfAShardMasksItsLabels)
{
    std::vector<std::uint8_t> mask(11, 1);
    mask[0] = 0;
    mask[3] = 0;
    mask[4] = 0;
    const TokenSource source({write("a.h5", 0, 11, "f00d", &mask)});
    const TokenOrder order(source, 10, 1);
    TokenBatch batch;
    order.read(0, 1, batch);
    EXPECT_EQ(batch.mask, (std::vector<std::uint8_t>{1, 1, 0, 0, 1, 1, 1, 1, 1, 1}))
        << "label of input i is token i + 1";
    EXPECT_EQ(batch.num_valid, 8);
    const EvaluationSet evaluation(source, 4, -1);
    evaluation.read(0, 3, batch);
    EXPECT_EQ(batch.num_valid, 8);
}

TEST_F(TokenOrderTest, PlanNamesWhatDiffersAndIgnoresPaths)
{
    const TokenSource source({write("a.h5", 0, 50), write("b.h5", 50, 50)});
    const TokenOrder order(source, 8, 1);
    const TokenSource moved({write("other_a.h5", 0, 50), write("other_b.h5", 50, 50)});
    EXPECT_EQ(TokenOrder(moved, 8, 1).plan_hash(), order.plan_hash());
    EXPECT_EQ(plan_difference(order.plan_fields(), TokenOrder(moved, 8, 1).plan_fields()), "");
    EXPECT_EQ(order.plan_hash().size(), 64U);

    const auto difference = [&](const TokenOrder& other)
    {
        EXPECT_NE(other.plan_hash(), order.plan_hash());
        return plan_difference(order.plan_fields(), other.plan_fields());
    };
    EXPECT_EQ(difference(TokenOrder(source, 9, 1)), "seq-len 8 -> 9");
    const TokenSource other_tokenizer({write("c.h5", 0, 50, "beef"), write("d.h5", 50, 50, "beef")});
    EXPECT_EQ(difference(TokenOrder(other_tokenizer, 8, 1)), "tokenizer numbers f00d -> numbers beef");
    const TokenSource fewer({write("e.h5", 0, 100)});
    EXPECT_EQ(difference(TokenOrder(fewer, 8, 1)), "shards 2 -> 1");
    const TokenSource longer({write("f.h5", 0, 50), write("g.h5", 50, 51)});
    EXPECT_EQ(difference(TokenOrder(longer, 8, 1)), "tokens 100 -> 101");
    const TokenSource changed({write("h.h5", 0, 50), write("i.h5", 51, 50)});
    EXPECT_EQ(difference(TokenOrder(changed, 8, 1)).substr(0, 8), "content ");
    const TokenSource swapped({dir_ / "b.h5", dir_ / "a.h5"});
    EXPECT_EQ(difference(TokenOrder(swapped, 8, 1)).substr(0, 8), "content ");
    std::vector<std::uint8_t> mask(50, 1);
    mask[7] = 0;
    const TokenSource masked({write("j.h5", 0, 50, "f00d", &mask), write("k.h5", 50, 50)});
    EXPECT_EQ(difference(TokenOrder(masked, 8, 1)).substr(0, 8), "content ");
}

TEST_F(TokenOrderTest, ABlendReadsTheWindowsOfItsSources)
{
    const TokenSource low = TokenSource({write("low.h5", 0, 1001)}), high = TokenSource({write("high.h5", 500'000, 501)});
    OrderSettings settings;
    settings.seq_len = 10;
    settings.seed = 3;
    const TokenOrder order({{"low", &low, 3.0}, {"high", &high, 1.0}}, settings);
    EXPECT_EQ(order.num_samples(), 150);
    EXPECT_EQ(order.counts(65536), (std::vector<std::int64_t>{49152, 16384}));
    TokenBatch batch;
    order.read(7, 40, batch);
    std::int64_t num_high = 0;
    for (std::int64_t row = 0; row < 40; ++row)
    {
        const SampleId id = order.id_at(7 + row);
        const std::int64_t first = (id.source == 1 ? 500'000 : 0) + id.sample * 10;
        EXPECT_EQ(batch.inputs[static_cast<std::size_t>(row * 10)], first);
        EXPECT_EQ(batch.labels[static_cast<std::size_t>(row * 10 + 9)], first + 10);
        num_high += id.source;
    }
    EXPECT_NEAR(static_cast<double>(num_high), 10, 3);
}

TEST_F(TokenOrderTest, PlansOfBlendsAndWindowsNameWhatDiffers)
{
    const TokenSource a = TokenSource({write("a.h5", 0, 100)}), b = TokenSource({write("b.h5", 100, 200)});
    OrderSettings settings;
    settings.seq_len = 8;
    const auto plan = [&](double weight, const OrderSettings& with) { return TokenOrder({{"a", &a, weight}, {"b", &b, 1.0}}, with).plan_fields(); };
    const std::vector<std::string> old = plan(1, settings);
    EXPECT_EQ(plan_difference(old, plan(3, settings)), "a.share 32768/65536 -> 49152/65536");
    EXPECT_EQ(TokenOrder({{"a", &a, 2.0}, {"b", &b, 2.0}}, settings).plan_fields(), old) << "the same shares";
    OrderSettings window = settings;
    window.shuffle.kind = Shuffle::Kind::window;
    window.shuffle.window_tokens = 400;
    EXPECT_EQ(plan(1, window)[3], "shuffle window-v1 48");
    OrderSettings none = settings;
    none.shuffle.kind = Shuffle::Kind::none;
    EXPECT_EQ(plan(1, none)[3], "shuffle none");
    EXPECT_EQ(TokenOrder({{"a", &a, 1.0}}, settings).plan_hash(), TokenOrder(a, 8, 9).plan_hash()) << "one source: name and weight mean nothing";
}

TEST_F(TokenOrderTest, AStageHasAnOrderOfItsOwnFromItsBase)
{
    const TokenSource source = source_of(1001);
    const TokenOrder first(source, 10, 5);
    TokenOrder second(source, 10, 5), again(source, 10, 5);
    second.begin_stage(37);
    again.begin_stage(37);
    std::vector<bool> seen(100);
    int same = 0;
    for (std::int64_t i = 0; i < 100; ++i)
    {
        const std::int64_t id = second.sample_at(37 + i);
        EXPECT_EQ(again.sample_at(37 + i), id);
        EXPECT_FALSE(seen[static_cast<std::size_t>(id)]) << "an epoch of the stage holds each sample once";
        seen[static_cast<std::size_t>(id)] = true;
        same += id == first.sample_at(i) ? 1 : 0;
    }
    EXPECT_LE(same, 6);
    EXPECT_EQ(second.counts(137), (std::vector<std::int64_t>{100}));
    second.begin_stage(0);
    EXPECT_EQ(second.sample_at(12), first.sample_at(12));
}

TEST_F(TokenOrderTest, DataMayGrowBehindWhatItWas)
{
    const std::string a = write("a.h5", 0, 100), b = write("b.h5", 100, 100), c = write("c.h5", 200, 50);
    const TokenSource ab({a, b}), abc({a, b, c}), acb({a, c, b}), only_a({a}), only_c({c});
    const TokenSource other({write("d.h5", 0, 100, "beef"), write("e.h5", 100, 100, "beef")});
    OrderSettings settings;
    settings.seq_len = 8;
    const std::vector<std::string> old = TokenOrder({{"x", &ab, 1.0}}, settings).plan_fields();
    EXPECT_EQ(append_fault(old, TokenOrder({{"x", &abc, 1.0}}, settings)), "");
    EXPECT_EQ(append_fault(old, TokenOrder({{"x", &ab, 1.0}, {"new", &only_c, 1.0}}, settings)), "");
    EXPECT_EQ(append_fault(old, TokenOrder({{"x", &acb, 1.0}}, settings)), "the first 2 shards of 'x' are not the old ones");
    EXPECT_EQ(append_fault(old, TokenOrder({{"x", &only_a, 1.0}}, settings)), "'x' had 2 shards and now has 1");
    EXPECT_EQ(append_fault(old, TokenOrder({{"x", &other, 1.0}}, settings)), "'x' has another tokenizer");
    OrderSettings longer = settings;
    longer.seq_len = 9;
    EXPECT_EQ(append_fault(old, TokenOrder({{"x", &abc, 1.0}}, longer)), "seq-len 8 -> 9");
    longer = settings;
    longer.shuffle.kind = Shuffle::Kind::none;
    EXPECT_EQ(append_fault(old, TokenOrder({{"x", &abc, 1.0}}, longer)), "shuffle (not set) -> none");
    const std::vector<std::string> two = TokenOrder({{"x", &ab, 1.0}, {"y", &only_c, 1.0}}, settings).plan_fields();
    EXPECT_EQ(append_fault(two, TokenOrder({{"y", &only_c, 5.0}, {"x", &abc, 1.0}}, settings)), "");
    EXPECT_EQ(append_fault(two, TokenOrder({{"x", &abc, 1.0}, {"z", &only_c, 1.0}}, settings)), "'y' is gone");
}

TEST_F(TokenOrderTest, TooLittleDataIsRefusedWithItsNumbers)
{
    const TokenSource source = source_of(100);
    EXPECT_EQ(TokenOrder(source, 99, 1).num_samples(), 1);
    try
    {
        TokenOrder(source, 256, 1);
        FAIL();
    }
    catch (const ConfigError& error)
    {
        EXPECT_STREQ(error.what(),
                     "the data holds 100 tokens (seq-len 256 needs 257). use a shorter seq-len or more text");
    }
    EXPECT_THROW(EvaluationSet(source_of(1), 4, -1), ConfigError);
}

TEST_F(TokenOrderTest, EvaluationCountsEachTokenOnceAndMasksThePadding)
{
    for (const std::int64_t num_tokens : {2, 5, 9, 10, 11, 30})
    {
        const TokenSource source = source_of(num_tokens);
        const EvaluationSet evaluation(source, 4, -1);
        EXPECT_EQ(evaluation.num_tokens(), num_tokens - 1);
        EXPECT_EQ(evaluation.num_sequences(), (num_tokens - 1 + 3) / 4);
        EXPECT_DOUBLE_EQ(evaluation.bytes_per_token(), 3.0);
        std::vector<int> counted(static_cast<std::size_t>(num_tokens));
        TokenBatch batch;
        for (std::int64_t row = 0; row < evaluation.num_sequences(); ++row)
        {
            evaluation.read(row, 1, batch);
            for (std::size_t i = 0; i < 4; ++i)
            {
                if (batch.mask[i] == 0)
                {
                    EXPECT_EQ(batch.inputs[i], 0);
                    EXPECT_EQ(batch.labels[i], 0);
                    continue;
                }
                EXPECT_EQ(batch.labels[i], batch.inputs[i] + 1);
                ++counted[static_cast<std::size_t>(batch.labels[i])];
            }
        }
        EXPECT_EQ(counted[0], 0) << "the first token has nothing before it";
        for (std::int64_t i = 1; i < num_tokens; ++i) { EXPECT_EQ(counted[static_cast<std::size_t>(i)], 1) << i; }
    }
}

TEST_F(TokenOrderTest, EvaluationStopsAtItsNumberOfTokens)
{
    const TokenSource source = source_of(100);
    const EvaluationSet evaluation(source, 8, 20);
    EXPECT_EQ(evaluation.num_tokens(), 20);
    EXPECT_EQ(evaluation.num_sequences(), 3);
    TokenBatch batch;
    evaluation.read(0, 3, batch);
    EXPECT_EQ(batch.num_valid, 20);
    EXPECT_EQ(EvaluationSet(source, 8, 1000).num_tokens(), 99);
}

}  // namespace plimsoll
