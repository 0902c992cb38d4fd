#include "io/tokenizer/bpe_trainer.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.hpp"
#include "io/tokenizer/piece_counts.hpp"

namespace plimsoll
{

namespace
{

PieceCounts counts_of(const std::vector<std::pair<std::string, int>>& words)
{
    PieceCounts counts;
    for (const auto& word : words) { counts.add(word.first, word.second); }
    return counts;
}

std::vector<std::string> merged_texts(const LearnedBpe& bpe)
{
    std::vector<std::string> texts;
    for (const auto& merge : bpe.merges) { texts.push_back(bpe.tokens[merge.first] + "+" + bpe.tokens[merge.second]); }
    return texts;
}

}  // namespace

// The header's example; the same counts are in HF tokenizers' documentation of its trainer.
TEST(BpeTrainer, MergesThePairsThatAreMetMostOften)
{
    BpeTrainerOptions options;
    options.min_frequency = 2;
    const LearnedBpe bpe =
        learn_bpe(counts_of({{"roses", 1}, {"are", 2}, {"red", 1}, {"voilets", 1}, {"blue", 1}, {"is", 2}}), options);
    EXPECT_EQ(merged_texts(bpe), (std::vector<std::string>{"r+e", "a+re", "i+s"}));
    EXPECT_EQ(bpe.last_frequency, 2);
    EXPECT_EQ(bpe.tokens.size(), 259U);
}

TEST(BpeTrainer, OfEquallyFrequentPairsTheOneWithTheLowerIdsIsFirst)
{
    BpeTrainerOptions options;
    options.vocab = 258;
    EXPECT_EQ(merged_texts(learn_bpe(counts_of({{"zy", 3}, {"ab", 3}, {"aa", 3}}), options)),
              (std::vector<std::string>{"a+a", "a+b"}));
}

TEST(BpeTrainer, SpecialTokensComeFirstThenTheBytesInTheOrderOfTheirCharacters)
{
    BpeTrainerOptions options;
    options.special_tokens = {"<|end|>", "<|pad|>"};
    const LearnedBpe bpe = learn_bpe(counts_of({}), options);
    ASSERT_EQ(bpe.tokens.size(), 258U);
    EXPECT_EQ(bpe.tokens[0], "<|end|>");
    EXPECT_EQ(bpe.tokens[1], "<|pad|>");
    EXPECT_EQ(bpe.tokens[2], "!");
    EXPECT_EQ(bpe.tokens[190], "\xC4\x80") << "U+0100, which stands for the byte 0";
    EXPECT_EQ(byte_character(' '), "\xC4\xA0");
    EXPECT_EQ(byte_character('\n'), "\xC4\x8A");
    EXPECT_EQ(byte_character(0xAD), "\xC5\x83");
    EXPECT_EQ(byte_character(0xFF), "\xC3\xBF");
}

TEST(BpeTrainer, OverlappingPairsAreMergedFromTheLeft)
{
    BpeTrainerOptions options;
    options.vocab = 258;
    const LearnedBpe bpe = learn_bpe(counts_of({{"aaaaa", 1}}), options);
    // (aa)(aa)a is left: two pairs remain, and one more merge of the lower ids.
    EXPECT_EQ(merged_texts(bpe).front(), "a+a");
    EXPECT_EQ(bpe.merges.size(), 2U);
}

TEST(BpeTrainer, RefusesOptionsThatCannotBe)
{
    BpeTrainerOptions options;
    options.vocab = 255;
    EXPECT_THROW(learn_bpe(counts_of({}), options), UsageError);
    options = {};
    options.special_tokens = {"<a>", "<a>"};
    EXPECT_THROW(learn_bpe(counts_of({}), options), UsageError);
}

TEST(PieceCounts, CountsAndMerges)
{
    PieceCounts a;
    PieceCounts b;
    for (int i = 0; i < 20000; ++i)
    {
        a.add("piece " + std::to_string(i % 7000));
        b.add("piece " + std::to_string(i % 9000), 2);
    }
    a.add(b);
    EXPECT_EQ(a.num(), 9000);
    EXPECT_EQ(a.total(), 60000);
    const auto rows = a.sorted();
    EXPECT_TRUE(
        std::is_sorted(rows.begin(), rows.end(), [](const auto& x, const auto& y) { return x.piece < y.piece; }));
    const auto row = std::find_if(rows.begin(), rows.end(), [](const auto& r) { return r.piece == "piece 8999"; });
    ASSERT_NE(row, rows.end());
    EXPECT_EQ(row->count, 4);
}

}  // namespace plimsoll
