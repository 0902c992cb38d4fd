// Where documents begin in batches, against a reading token by token.

#include <gtest/gtest.h>

#include <numeric>

#include "base/rng.hpp"
#include "io/token_formats/megatron.hpp"
#include "io/token_order.hpp"
#include "support/temp_dir.hpp"

namespace plimsoll
{

namespace
{

using DocumentStarts = std::vector<std::int64_t>;

/// Every token is another number from 1 on, so that it says of which document it is; 0 is padding.
class DocumentStartsTest : public ::testing::Test
{
  protected:
    static constexpr std::int64_t vocab = 60'000;

    std::vector<std::uint32_t> next_document(std::int64_t size)
    {
        std::vector<std::uint32_t> ids(static_cast<std::size_t>(size));
        std::iota(ids.begin(), ids.end(), static_cast<std::uint32_t>(document_of_.size()));
        document_of_.resize(document_of_.size() + ids.size(), num_documents_++);
        return ids;
    }

    std::string shard(const std::string& name, const std::vector<std::int64_t>& sizes)
    {
        TokenShardWriter writer(dir_ / name, vocab, "numbers", "f00d");
        for (const std::int64_t size : sizes)
        {
            const std::vector<std::uint32_t> ids = next_document(size);
            writer.add_document(ids.data(), size, size);
        }
        writer.finish();
        return dir_ / name;
    }

    std::string megatron(const std::string& name, const std::vector<std::int64_t>& sizes)
    {
        MegatronWriter writer(dir_ / name, vocab);
        for (const std::int64_t size : sizes)
        {
            TokenDocument document;
            document.ids = next_document(size);
            writer.add(document);
        }
        writer.finish();
        return "megatron:" + (dir_ / name);
    }

    /// From the tokens alone.
    DocumentStarts brute_force(const TokenBatch& batch) const
    {
        DocumentStarts starts;
        for (std::size_t n = 0; n < batch.inputs.size(); ++n)
        {
            const auto document = [&](std::size_t at) { return document_of_.at(static_cast<std::size_t>(batch.inputs[at])); };
            const bool is_first = n % static_cast<std::size_t>(batch.seq_len) == 0;
            if (is_first || document(n) != document(n - 1)) { starts.push_back(static_cast<std::int64_t>(n)); }
        }
        starts.push_back(static_cast<std::int64_t>(batch.inputs.size()));
        return starts;
    }

    void check(const TokenOrder& order)
    {
        TokenBatch batch;
        for (std::int64_t first = 0; first + 3 <= 2 * order.num_samples(); first += 3)
        {
            order.read(first, 3, batch);
            ASSERT_EQ(batch.document_starts, brute_force(batch)) << first;
        }
    }

    static std::vector<std::int64_t> mixed_sizes(std::uint64_t seed, std::uint64_t count)
    {
        const CounterRng rng(seed, RngPurpose::test);
        std::vector<std::int64_t> sizes;
        for (std::uint64_t i = 0; i < count; ++i)
        {
            sizes.push_back(static_cast<std::int64_t>(1 + rng.bits(i) % (i % 7 == 0 ? 100 : i % 3 == 0 ? 3 : 20)));
        }
        return sizes;
    }

    static OrderSettings masked(std::int64_t seq_len)
    {
        OrderSettings settings;
        settings.seq_len = seq_len;
        settings.seed = 5;
        settings.document_masks = true;
        return settings;
    }

    std::vector<std::int64_t> document_of_ = {-1};  ///< of each token
    std::int64_t num_documents_ = 0;
    plimsoll::testing::TempDir dir_;
};

}  // namespace

TEST_F(DocumentStartsTest, AreThoseOfTheTokensInEveryOrder)
{
    const TokenSource shards({shard("a.h5", mixed_sizes(1, 60)), shard("b.h5", mixed_sizes(2, 40))});
    const TokenSource pair({megatron("c", mixed_sizes(3, 50))}, vocab);
    for (const bool best_fit : {false, true})
    {
        for (const std::int64_t seq_len : {1, 16, 33})
        {
            for (const Shuffle::Kind kind : {Shuffle::Kind::global, Shuffle::Kind::window, Shuffle::Kind::none})
            {
                SCOPED_TRACE(::testing::Message() << (best_fit ? "best-fit " : "concat ") << seq_len);
                OrderSettings settings = masked(seq_len);
                settings.best_fit = best_fit;
                settings.shuffle.kind = kind;
                settings.shuffle.window_tokens = 200;
                check(TokenOrder({{"", &shards, 1.0}}, settings));
                check(TokenOrder({{"", &pair, 1.0}}, settings));
                check(TokenOrder({{"x", &shards, 2.0}, {"y", &pair, 1.0}}, settings));
            }
        }
    }
}

TEST_F(DocumentStartsTest, AtTheEdgesOfSamples)
{
    // Documents that end with a sample, with its label, one before; one over several samples; one token each.
    const TokenSource source({shard("a.h5", {4, 5, 3, 9, 1, 1, 1, 1, 1})});
    OrderSettings settings = masked(4);
    settings.shuffle.kind = Shuffle::Kind::none;
    const TokenOrder order({{"", &source, 1.0}}, settings);
    TokenBatch batch;
    order.read(0, 6, batch);
    EXPECT_EQ(batch.document_starts, (DocumentStarts{0, 4, 8, 9, 12, 16, 20, 21, 22, 23, 24}));
}

TEST_F(DocumentStartsTest, PaddingBeginsAnew)
{
    const TokenSource source({shard("a.h5", {4, 3})});
    OrderSettings settings = masked(9);
    settings.best_fit = true;
    const TokenOrder order({{"", &source, 1.0}}, settings);
    TokenBatch batch;
    order.read(0, 1, batch);
    EXPECT_EQ(batch.inputs, (std::vector<std::int64_t>{1, 2, 3, 4, 5, 6, 0, 0, 0})) << "token 7 is a label only";
    EXPECT_EQ(batch.document_starts, (DocumentStarts{0, 4, 6, 9}));
}

TEST_F(DocumentStartsTest, FillInTheMiddleMovesNoBorder)
{
    const TokenSource source({shard("a.h5", mixed_sizes(4, 80))});
    for (const bool best_fit : {false, true})
    {
        OrderSettings settings = masked(30);
        settings.best_fit = best_fit;
        const TokenOrder plain({{"", &source, 1.0}}, settings);
        settings.fim.rate = 1;
        settings.fim.prefix = 50'001;
        settings.fim.suffix = 50'002;
        settings.fim.middle = 50'003;
        const TokenOrder order({{"", &source, 1.0}}, settings);
        TokenBatch expected, batch;
        plain.read(0, 12, expected);
        order.read(0, 12, batch);
        EXPECT_NE(batch.inputs, expected.inputs);
        EXPECT_EQ(batch.document_starts, expected.document_starts);
        // What was moved stayed in its document.
        for (std::size_t i = 0; i + 1 < batch.document_starts.size(); ++i)
        {
            const auto begin = static_cast<std::size_t>(batch.document_starts[i]);
            for (auto n = begin; n < static_cast<std::size_t>(batch.document_starts[i + 1]); ++n)
            {
                if (batch.inputs[n] > 50'000) { continue; }
                EXPECT_EQ(document_of_.at(static_cast<std::size_t>(batch.inputs[n])),
                          document_of_.at(static_cast<std::size_t>(expected.inputs[begin])));
            }
        }
    }
}

TEST_F(DocumentStartsTest, MasksChangeNeitherTokensNorLabelsNorTheOrder)
{
    const TokenSource source({shard("a.h5", mixed_sizes(6, 80))});
    for (const bool best_fit : {false, true})
    {
        OrderSettings settings = masked(20);
        settings.best_fit = best_fit;
        const TokenOrder with({{"", &source, 1.0}}, settings);
        settings.document_masks = false;
        const TokenOrder without({{"", &source, 1.0}}, settings);
        TokenBatch a, b;
        with.read(0, 10, a);
        without.read(0, 10, b);
        EXPECT_EQ(a.inputs, b.inputs);
        EXPECT_EQ(a.labels, b.labels);
        EXPECT_EQ(a.mask, b.mask);
        EXPECT_TRUE(b.document_starts.empty());
        EXPECT_EQ(with.plan_hash(), without.plan_hash());
        without.read(0, 10, a);
        EXPECT_TRUE(a.document_starts.empty()) << "of the batch that was there before";
    }
}

TEST_F(DocumentStartsTest, OfValidationToo)
{
    const TokenSource source({shard("a.h5", mixed_sizes(7, 30)), shard("b.h5", {11, 1, 7})});
    for (const std::int64_t most : {std::int64_t{-1}, std::int64_t{50}, std::int64_t{53}})
    {
        const EvaluationSet set(source, 12, most, true);
        TokenBatch batch;
        set.read(0, set.num_sequences(), batch);
        EXPECT_EQ(batch.document_starts, brute_force(batch));
        EvaluationSet(source, 12, most).read(0, 1, batch);
        EXPECT_TRUE(batch.document_starts.empty());
    }
}

}  // namespace plimsoll
