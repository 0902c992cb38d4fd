#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.hpp"
#include "io/dedup/key_groups.hpp"
#include "io/dedup/minhash.hpp"
#include "io/file.hpp"
#include "support/temp_dir.hpp"

namespace plimsoll
{

namespace
{

using UnitHashes = std::vector<std::uint64_t>;

UnitHashes words_of(const std::string& text)
{
    UnitHashes hashes;
    append_word_hashes(text, hashes);
    return hashes;
}

MinhashParameters minhash_of(int ngram, int bands, int rows)
{
    MinhashParameters parameters;
    parameters.ngram = ngram;
    parameters.bands = bands;
    parameters.rows = rows;
    return parameters;
}

/// Set similarity of the n-grams, the slow way.
double jaccard(const UnitHashes& a, const UnitHashes& b)
{
    const std::set<std::uint64_t> one(a.begin(), a.end()), two(b.begin(), b.end());
    std::size_t both = 0;
    for (const std::uint64_t hash : one) { both += two.count(hash); }
    return static_cast<double>(both) / static_cast<double>(one.size() + two.size() - both);
}

}  // namespace

TEST(Minhash, WordsAreRunsOfLettersMarksAndNumbers)
{
    EXPECT_EQ(words_of("the cat"), words_of(" the,\n(cat)!"));
    EXPECT_EQ(words_of("caf\xC3\xA9 \xE6\x97\xA5\xE6\x9C\xAC 42").size(), 3u);
    EXPECT_EQ(words_of("cafe\xCC\x81").size(), 1u);  // the accent is a mark of its own
    EXPECT_NE(words_of("ab c"), words_of("a bc"));
    EXPECT_TRUE(words_of(" ?! \n").empty());
}

TEST(Minhash, NgramsSlideAndAShortTextIsOne)
{
    const Minhash minhash(minhash_of(3, 2, 2));
    UnitHashes hashes;
    minhash.ngrams(words_of("a b c d e"), hashes);
    EXPECT_EQ(hashes.size(), 3u);
    minhash.ngrams(words_of("a b"), hashes);
    EXPECT_EQ(hashes.size(), 1u);
    minhash.ngrams({}, hashes);
    EXPECT_TRUE(hashes.empty());
}

TEST(Minhash, EstimatesTheHandWorkedJaccardTable)
{
    // Bigrams: "a b c d" {ab bc cd}.
    struct Row
    {
        const char* other;
        double jaccard;
    };
    const Row rows[] = {
        {"a b c d", 1.0},          // the same
        {"a b c", 2.0 / 3},        // {ab bc}
        {"a b c d e", 3.0 / 4},    // and de
        {"b c x", 1.0 / 4},        // bc of {ab bc cd cx}
        {"d c b a", 0.0},          // {dc cb ba}
        {"a b a b c d", 3.0 / 4},  // {ab ba bc cd}
    };
    const Minhash minhash(minhash_of(2, 64, 32));
    UnitHashes base, other;
    minhash.ngrams(words_of("a b c d"), base);
    for (const Row& row : rows)
    {
        minhash.ngrams(words_of(row.other), other);
        EXPECT_DOUBLE_EQ(jaccard(base, other), row.jaccard) << row.other;
        const double estimate = Minhash::similarity(minhash.signature(base), minhash.signature(other));
        // Four standard deviations of 2,048 minima.
        EXPECT_NEAR(estimate, row.jaccard, 4 * std::sqrt(row.jaccard * (1 - row.jaccard) / 2048)) << row.other;
    }
}

TEST(Minhash, SharedKeysFollowTheCurveOfTheBands)
{
    // 400 pairs of 200 numbers each, 160 of them common: s = 160 / 240 = 2/3, P = 1 - (1 - s^4)^5.
    const Minhash minhash(minhash_of(1, 5, 4));
    int shared = 0;
    for (std::uint64_t pair = 0; pair < 400; ++pair)
    {
        UnitHashes a, b, left, right;
        for (std::uint64_t i = 0; i < 240; ++i)
        {
            const std::uint64_t unit = pair * 1000 + i;
            if (i < 200) { a.push_back(unit); }
            if (i >= 40) { b.push_back(unit); }
        }
        minhash.ngrams(a, left);
        minhash.ngrams(b, right);
        const auto one = minhash.keys(minhash.signature(left)), two = minhash.keys(minhash.signature(right));
        bool any = false;
        for (std::size_t band = 0; band < one.size(); ++band) { any = any || one[band] == two[band]; }
        shared += any ? 1 : 0;
    }
    const double expected = 1 - std::pow(1 - std::pow(2.0 / 3, 4), 5);
    EXPECT_NEAR(shared / 400.0, expected, 4 * std::sqrt(expected * (1 - expected) / 400));
}

TEST(Minhash, KeysOfDifferentBandsNeverMeet)
{
    const Minhash minhash(minhash_of(1, 4, 1));
    const auto keys = minhash.keys({7, 7, 7, 7});
    for (std::size_t i = 1; i < keys.size(); ++i) { EXPECT_FALSE(keys[0] == keys[i]); }
}

TEST(KeyGroups, FindsTheFirstOfEachKeyWithAnyMemory)
{
    const testing::TempDir dir(testing::fast_directory());
    constexpr std::int64_t num = 20000;
    std::vector<std::pair<std::int64_t, std::int64_t>> expected;
    for (const std::int64_t memory : {KeyGroups::least_memory(num), std::int64_t{1} << 20, std::int64_t{64} << 20})
    {
        KeyGroups groups(dir.path(), num, memory);
        EXPECT_TRUE(list_directory(dir.path()).empty());
        for (std::int64_t item = 0; item < num; ++item)
        {
            // Items 3 k and 3 k + 7000 share a key.
            const std::int64_t number = item >= 7000 && (item - 7000) % 3 == 0 ? item - 7000 : item;
            groups.add(exact_key({static_cast<std::uint32_t>(number)}), item);
        }
        std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
        groups.for_each([&](std::int64_t first, std::int64_t item) { pairs.emplace_back(first, item); });
        std::sort(pairs.begin(), pairs.end());
        if (expected.empty())
        {
            EXPECT_GT(groups.num_files(), 4);
            expected = pairs;
        }
        EXPECT_EQ(pairs, expected);
        if (memory > (32 << 20)) { EXPECT_EQ(groups.num_files(), 1); }
    }
    EXPECT_EQ(expected.size(), 4334u);
}

TEST(KeyGroups, OneKeyAMillionTimesTakesNoMoreMemory)
{
    const testing::TempDir dir(testing::fast_directory());
    KeyGroups groups(dir.path(), 300000, KeyGroups::least_memory(300000));
    for (std::int64_t item = 0; item < 300000; ++item) { groups.add({1, 2}, item); }
    std::int64_t found = 0;
    groups.for_each([&](std::int64_t first, std::int64_t) { found += first == 0 ? 1 : 0; });
    EXPECT_EQ(found, 299999);
}

TEST(Clusters, AreJoinedByAnyNumberOfStepsAndNamedByTheirFirst)
{
    Clusters clusters(8);
    clusters.join(5, 7);
    clusters.join(3, 5);
    clusters.join(7, 1);
    clusters.join(2, 6);
    const std::vector<std::int64_t> expected = {0, 1, 2, 1, 4, 1, 2, 1};
    for (std::int64_t i = 0; i < 8; ++i) { EXPECT_EQ(clusters.root(i), expected[static_cast<std::size_t>(i)]); }
}

}  // namespace plimsoll
