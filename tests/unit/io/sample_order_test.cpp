#include <gtest/gtest.h>

#include <malloc.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>
#include <tuple>

#include "base/error.hpp"
#include "io/sample_order.hpp"
#include "support/expect_error.hpp"

namespace plimsoll
{

namespace
{

using Kind = Shuffle::Kind;

/// Each epoch is a bijection.
void expect_covered(const EpochOrder& order, std::int64_t epoch)
{
    const std::int64_t size = order.size();
    std::vector<bool> seen(static_cast<std::size_t>(size));
    for (std::int64_t i = 0; i < size; ++i)
    {
        const std::int64_t sample = order.sample_at(epoch * size + i);
        ASSERT_TRUE(sample >= 0 && sample < size && !seen[static_cast<std::size_t>(sample)])
            << size << " " << epoch << " " << i;
        seen[static_cast<std::size_t>(sample)] = true;
    }
}

std::vector<SampleSource> three_sources()
{
    std::vector<SampleSource> sources(3);
    sources[0].name = "web";
    sources[0].size = 1003;
    sources[0].weight = 0.7;
    sources[1].name = "code";
    sources[1].size = 257;
    sources[1].weight = 0.2;
    sources[2].name = "wiki";
    sources[2].size = 64;
    sources[2].weight = 0.1;
    return sources;
}

using Id = std::tuple<std::int64_t, std::int64_t, std::int64_t>;

Id id_of(const SampleOrder& order, std::int64_t position)
{
    const SampleId id = order.at(position);
    return {id.source, id.epoch, id.sample};
}

/// docs/data_order.md by a second implementation, tests/unit/base/golden/data_order_reference.py.
nlohmann::json golden_orders(const char* kind)
{
    std::ifstream file(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/unit/base/golden/data_order.json");
    return nlohmann::json::parse(file).at(kind);
}

std::uint64_t golden_seed(const nlohmann::json& row)
{
    return std::stoull(row.at("seed").get<std::string>(), nullptr, 16);
}

}  // namespace

TEST(SampleOrder, WindowsAreThoseOfTheSecondImplementation)
{
    for (const nlohmann::json& row : golden_orders("window"))
    {
        const EpochOrder order(row.at("size"), Kind::window, row.at("window"), golden_seed(row));
        const std::int64_t begin = row.at("epoch").get<std::int64_t>() * order.size();
        for (std::size_t i = 0; i < row.at("place").size(); ++i)
        {
            EXPECT_EQ(order.sample_at(begin + row["place"][i].get<std::int64_t>()),
                      row["sample"][i].get<std::int64_t>())
                << row;
        }
        if (!row.contains("digest")) { continue; }
        std::uint64_t digest = 0;
        for (std::int64_t i = 0; i < order.size(); ++i)
        {
            digest +=
                mix64(mix64(static_cast<std::uint64_t>(i)) ^ static_cast<std::uint64_t>(order.sample_at(begin + i)));
        }
        EXPECT_EQ(digest, std::stoull(row["digest"].get<std::string>(), nullptr, 16)) << row;
    }
}

TEST(SampleOrder, BlendsAreThoseOfTheSecondImplementation)
{
    for (const nlohmann::json& row : golden_orders("blend"))
    {
        std::vector<SampleSource> sources(row.at("names").size());
        for (std::size_t d = 0; d < sources.size(); ++d)
        {
            sources[d].name = row["names"][d];
            sources[d].size = row["sizes"][d];
            sources[d].weight = row["weights"][d];
        }
        const SampleOrder order(sources, row.at("shuffle") == "window" ? Kind::window : Kind::global, row.at("window"),
                                golden_seed(row));
        EXPECT_EQ(order.counts(65536), row.at("counts").get<std::vector<std::int64_t>>());
        for (std::size_t i = 0; i < row.at("position").size(); ++i)
        {
            const Id expected = {row["id"][i][0], row["id"][i][1], row["id"][i][2]};
            EXPECT_EQ(id_of(order, row["position"][i]), expected) << row["position"][i];
        }
    }
}

TEST(SampleOrder, EveryEpochOfEveryShuffleIsABijectionAroundPowersOfTwo)
{
    std::vector<std::int64_t> sizes = {1, 2, 3, 15, 16, 17};
    for (const int bits : {5, 8, 10})
    {
        for (const std::int64_t off : {-1, 0, 1}) { sizes.push_back((1ll << bits) + off); }
    }
    for (const std::int64_t size : sizes)
    {
        for (const Kind kind : {Kind::global, Kind::window, Kind::none})
        {
            for (const std::int64_t window : {1, 16, 40, 100, 5000})
            {
                if (kind != Kind::window && window > 1) { continue; }
                const EpochOrder order(size, kind, window, 7);
                for (const std::int64_t epoch : {0, 1, 5}) { expect_covered(order, epoch); }
            }
        }
    }
    const EpochOrder large(65537 * 2, Kind::window, 3000, 1);
    expect_covered(large, 0);
}

TEST(SampleOrder, AWindowReadsFromSixteenPlacesAtATime)
{
    constexpr std::int64_t size = 100'000;
    const EpochOrder order(size, Kind::window, 1600, 3);
    ASSERT_EQ(order.pool_samples(), 1600);
    for (const std::int64_t pool : {0, 1, 30, 61})
    {
        std::set<std::int64_t> blocks;
        for (std::int64_t i = 0; i < 1600; ++i) { blocks.insert(order.sample_at(pool * 1600 + i) / 100); }
        EXPECT_EQ(blocks.size(), 16u) << "100,000 is a multiple of the block, so no short one shifts the others";
    }
    std::int64_t neighbours = 0;
    for (std::int64_t i = 1; i < size; ++i) { neighbours += order.sample_at(i) == order.sample_at(i - 1) + 1 ? 1 : 0; }
    EXPECT_LT(neighbours, 120) << "about size / pool are expected by chance, 62";
}

TEST(SampleOrder, AShortBlockDoesNotAlwaysComeLast)
{
    std::set<std::int64_t> places;
    const EpochOrder order(1605, Kind::window, 160, 3);  // 160 blocks of 10 and one of 5
    for (std::int64_t epoch = 0; epoch < 20; ++epoch)
    {
        for (std::int64_t i = 0; i < 1605; ++i)
        {
            if (order.sample_at(epoch * 1605 + i) >= 1600)
            {
                places.insert(i / 160);
                break;
            }
        }
    }
    EXPECT_GT(places.size(), 5u);
}

TEST(SampleOrder, FirstPlacesAndNeighboursAreThoseOfChance)
{
    // data.md 7.4 (v). Window and blend, the global order stands in rng_test.
    constexpr std::int64_t size = 4096;
    std::vector<std::int64_t> first(16);
    std::int64_t followers = 0;
    for (std::uint64_t seed = 0; seed < 2000; ++seed)
    {
        const EpochOrder order(size, Kind::window, 512, seed);
        const std::int64_t a = order.sample_at(0);
        ++first[static_cast<std::size_t>(a / (size / 16))];
        followers += order.sample_at(1) == a + 1 ? 1 : 0;
    }
    double chi = 0;
    for (const std::int64_t count : first) { chi += std::pow(static_cast<double>(count) - 125.0, 2) / 125.0; }
    EXPECT_LT(chi, 37.7) << "15 degrees of freedom, one in a thousand";
    EXPECT_LE(followers, 15) << "2000 / 512 = 4 are expected";
}

TEST(SampleOrder, TwoSeedsAndTwoEpochsAgreeInAboutOnePlace)
{
    // data.md 7.4 (vi).
    constexpr std::int64_t size = 20'000;
    for (const Kind kind : {Kind::global, Kind::window})
    {
        // Epoch 1 of seed 1 against its epoch 0, and both against epoch 0 of seed 2: keys are no sums.
        const EpochOrder a(size, kind, 320, 1), a_next(size, kind, 320, 1), b(size, kind, 320, 2);
        std::int64_t same_seeds = 0, same_epochs = 0, same_mixed = 0;
        for (std::int64_t i = 0; i < size; ++i)
        {
            const std::int64_t next = a_next.sample_at(size + i);
            same_seeds += a.sample_at(i) == b.sample_at(i) ? 1 : 0;
            same_epochs += a.sample_at(i) == next ? 1 : 0;
            same_mixed += next == b.sample_at(i) ? 1 : 0;
        }
        EXPECT_LE(same_seeds, 8);
        EXPECT_LE(same_epochs, 8);
        EXPECT_LE(same_mixed, 8);
    }
}

TEST(SampleOrder, ABlendHoldsItsSharesExactlyInEveryBlockAndNearlyInEveryPrefix)
{
    const SampleOrder order(three_sources(), Kind::global, 0, 42);
    const std::vector<std::int64_t> in_block = {45875, 13107, 6554};  // 45875.2, 13107.2, 6553.6
    EXPECT_EQ(std::accumulate(in_block.begin(), in_block.end(), std::int64_t{0}), 65536);
    EXPECT_EQ(order.counts(65536), in_block);
    EXPECT_EQ(order.counts(3 * 65536), (std::vector<std::int64_t>{3 * 45875, 3 * 13107, 3 * 6554}));
    std::vector<std::int64_t> seen(3);
    double worst = 0;
    for (std::int64_t position = 0; position < 2 * 65536; ++position)
    {
        ++seen[static_cast<std::size_t>(order.at(position).source)];
        for (std::size_t d = 0; d < 3; ++d)
        {
            const double expected = static_cast<double>(position + 1) * static_cast<double>(in_block[d]) / 65536;
            worst = std::max(worst, std::abs(static_cast<double>(seen[d]) - expected));
        }
        if (position % 9999 == 0) { ASSERT_EQ(order.counts(position + 1), seen); }
    }
    EXPECT_LE(worst, 4.0) << "at most one more than the number of sources";
    EXPECT_NEAR(order.share(0), 0.7, 1.0 / 65536);
}

TEST(SampleOrder, EachSourceOfABlendIsReadEpochByEpoch)
{
    const SampleOrder order(three_sources(), Kind::global, 0, 42);
    std::vector<std::set<std::pair<std::int64_t, std::int64_t>>> seen(3);
    std::vector<std::int64_t> last_epoch(3, 0);
    for (std::int64_t position = 0; position < 70'000; ++position)  // past the border of a block
    {
        const SampleId id = order.at(position);
        const auto d = static_cast<std::size_t>(id.source);
        ASSERT_TRUE(seen[d].insert({id.epoch, id.sample}).second) << "twice in an epoch";
        ASSERT_TRUE(id.epoch == last_epoch[d] || id.epoch == last_epoch[d] + 1);
        if (id.epoch != last_epoch[d])
        {
            ASSERT_EQ(static_cast<std::int64_t>(seen[d].size()) % order.size(id.source), 1 % order.size(id.source))
                << "an epoch is read to its end first";
        }
        last_epoch[d] = id.epoch;
    }
    EXPECT_EQ(last_epoch[2], 70'000 / 10 / 64);
}

TEST(SampleOrder, TheStreamOfABlendDoesNotDependOnTheNumberOfRanks)
{
    // data.md 7.4 (i) and (ii): any rank finds its positions alone, in any order, in an order of its own.
    for (const Kind kind : {Kind::global, Kind::window})
    {
        std::vector<Id> expected;
        {
            const SampleOrder order(three_sources(), kind, 64, 5);
            for (std::int64_t position = 0; position < 24 * 60; ++position)
            {
                expected.push_back(id_of(order, position));
            }
        }
        for (const std::int64_t ranks : {2, 3, 4, 6, 8, 12, 24})
        {
            std::vector<Id> stream(expected.size());
            for (std::int64_t rank = 0; rank < ranks; ++rank)
            {
                const SampleOrder order(three_sources(), kind, 64, 5);
                const std::int64_t per_rank = 24 / ranks;
                const std::int64_t micro = per_rank % 2 == 0 ? 2 : 1;
                for (std::int64_t step = 0; step < 60; ++step)
                {
                    for (std::int64_t m = 0; m < per_rank / micro; ++m)
                    {
                        for (std::int64_t i = 0; i < micro; ++i)
                        {
                            const std::int64_t position = step * 24 + (m * ranks + rank) * micro + i;
                            stream[static_cast<std::size_t>(position)] = id_of(order, position);
                        }
                    }
                }
            }
            ASSERT_EQ(stream, expected) << ranks;
        }
    }
}

TEST(SampleOrder, PlacesAreFoundInAnyOrder)
{
    const SampleOrder forward(three_sources(), Kind::window, 64, 5), backward(three_sources(), Kind::window, 64, 5);
    std::vector<Id> expected;
    for (std::int64_t position = 65'000; position < 66'000; ++position)
    {
        expected.push_back(id_of(forward, position));
    }
    for (std::int64_t position = 66'000; position-- > 65'000;)
    {
        ASSERT_EQ(id_of(backward, position), expected[static_cast<std::size_t>(position - 65'000)]);
    }
}

TEST(SampleOrder, OtherSourcesDoNotChangeTheOrderWithinOne)
{
    std::vector<SampleSource> more = three_sources();
    more.insert(more.begin(), SampleSource());
    more[0].name = "new";
    more[0].size = 10;
    const auto code_of = [](const SampleOrder& order)
    {
        std::vector<std::int64_t> samples;
        for (std::int64_t position = 0; samples.size() < 300; ++position)
        {
            const SampleId id = order.at(position);
            if (order.size(id.source) == 257) { samples.push_back(id.sample); }
        }
        return samples;
    };
    EXPECT_EQ(code_of(SampleOrder(three_sources(), Kind::global, 0, 5)),
              code_of(SampleOrder(more, Kind::global, 0, 5)));
}

TEST(SampleOrder, AWeightThatRoundsToNothingIsRefused)
{
    std::vector<SampleSource> sources = three_sources();
    sources[2].weight = 1e-6;
    plimsoll::testing::expect_error<ConfigError>([&] { SampleOrder(sources, Kind::global, 0, 1); },
                                                 "weight 1e-06 in [data.wiki] is 1.1e-06 of all weights (less than 1 / "
                                                 "131072: the source would never be read). raise it, or "
                                                 "leave the source out");
    sources[2].weight = 0.9 / 65536;
    EXPECT_EQ(SampleOrder(sources, Kind::global, 0, 1).counts(65536)[2], 1);
}

TEST(SampleOrder, MemoryDoesNotDependOnTheNumberOfSamples)
{
    // data.md 7.4 (vii): 10^6 against 10^10 samples, and positions far into the run.
    const auto used = [](std::int64_t size, Kind kind)
    {
        std::vector<SampleSource> sources = three_sources();
        for (SampleSource& source : sources) { source.size = size; }
        const std::size_t before = mallinfo2().uordblks + mallinfo2().hblkhd;
        const SampleOrder order(sources, kind, 1'000'000, 9);
        for (std::int64_t i = 0; i < 8; ++i) { order.at(i * (size / 3)); }
        return static_cast<std::int64_t>(mallinfo2().uordblks + mallinfo2().hblkhd - before);
    };
    for (const Kind kind : {Kind::global, Kind::window, Kind::none})
    {
        const std::int64_t bound = (384 << 10) + 3 * 2 * (128 << 10) + (64 << 10);
        EXPECT_LT(used(1'000'000, kind), bound);
        EXPECT_LT(used(10'000'000'000, kind), bound);
    }
}

}  // namespace plimsoll
