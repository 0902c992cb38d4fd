#include "comm/bench_statistics.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "support/expect_error.hpp"

using namespace plimsoll;
using plimsoll::testing::expect_error;

namespace
{

std::vector<double> one_to(int last)
{
    std::vector<double> values(static_cast<std::size_t>(last));
    std::iota(values.rbegin(), values.rend(), 1.0);  // falling: the order must not matter
    return values;
}

}  // namespace

TEST(Percentile, IsTheNearestRank)
{
    EXPECT_EQ(percentile({7}, 50), 7);
    EXPECT_EQ(percentile({7}, 99), 7);
    EXPECT_EQ(percentile({2, 1}, 50), 1) << "half of all do not exceed the lower one";
    EXPECT_EQ(percentile(one_to(3), 50), 2);
    EXPECT_EQ(percentile(one_to(4), 50), 2);
    EXPECT_EQ(percentile(one_to(100), 50), 50);
    EXPECT_EQ(percentile(one_to(100), 99), 99);
    EXPECT_EQ(percentile(one_to(100), 100), 100);
    EXPECT_EQ(percentile(one_to(101), 99), 100);
    EXPECT_EQ(percentile(one_to(200), 99), 198);
    EXPECT_EQ(percentile(one_to(1000), 0.05), 1);
}

// nccl-tests, src/all_reduce.cu and doc/PERFORMANCE.md: 2 (n - 1) / n. With two ranks it is 1 and hides a wrong formula.
TEST(BusFactor, ByHand)
{
    EXPECT_EQ(all_reduce_bus_factor(1), 0);
    EXPECT_EQ(all_reduce_bus_factor(2), 1);
    EXPECT_DOUBLE_EQ(all_reduce_bus_factor(3), 4.0 / 3);
    EXPECT_EQ(all_reduce_bus_factor(4), 1.5);
    EXPECT_EQ(all_reduce_bus_factor(8), 1.75);
    EXPECT_DOUBLE_EQ(all_reduce_bus_factor(1000), 1.998);
}

TEST(TimeFigures, FewIterationsHaveNoP99)
{
    const TimeFigures few = time_figures(one_to(99));
    EXPECT_TRUE(std::isnan(few.p99));
    EXPECT_EQ(few.p50, 50);
    EXPECT_EQ(few.mean, 50);
    EXPECT_EQ(few.minimum, 1);
    EXPECT_EQ(few.maximum, 99);
    EXPECT_EQ(time_figures(one_to(100)).p99, 99);
}

TEST(SlowestRank, IsNamedWithItsShare)
{
    EXPECT_EQ(slowest_rank({10}).share, 1);
    EXPECT_TRUE(slowest_rank({10}).even) << "nobody to compare with";
    const SlowestRank two = slowest_rank({46, 54});
    EXPECT_EQ(two.rank, 1);
    EXPECT_EQ(two.share, 0.54);
    EXPECT_TRUE(two.even);
    EXPECT_TRUE(slowest_rank({25, 75}).even);
    EXPECT_FALSE(slowest_rank({24, 76}).even);
    EXPECT_FALSE(slowest_rank({10, 60, 10, 10}).even) << "0.67 of four ranks";
    EXPECT_EQ(slowest_rank({0, 0}).share, 0);
}

TEST(SizeRange, Parses)
{
    const SizeRange usual = parse_size_range("1K:64M");
    EXPECT_EQ(usual.first, 1024);
    EXPECT_EQ(usual.last, 67108864);
    EXPECT_EQ(usual.sizes().size(), 17U);
    EXPECT_EQ(usual.sizes().back(), 67108864);
    EXPECT_EQ(parse_size_range("4M").sizes(), std::vector<std::int64_t>{4194304});
    EXPECT_EQ(parse_size_range("8:40").sizes(), (std::vector<std::int64_t>{8, 16, 32}));
    EXPECT_EQ(parse_size_range("1K:2K:1.25").sizes(), (std::vector<std::int64_t>{1024, 1280, 1600, 2000}));
    EXPECT_EQ(parse_size_range("4:7:1.01").sizes(), (std::vector<std::int64_t>{4, 5, 6})) << "each size once";
    EXPECT_EQ(parse_size_range("64KiB:1MB").first, 65536);
    EXPECT_EQ(parse_size_range("64KiB:1MB").last, 1000000);
    for (const char* text : {"1024:67108864", "4194304", "1024:4096:4"})
    {
        EXPECT_EQ(size_range_text(parse_size_range(text)), text);
    }
    EXPECT_EQ(size_range_text(SizeRange()), "1024:67108864");
}

TEST(SizeRange, RefusesWhatIsNone)
{
    const auto refused = [](const char* text, const std::string& message)
    { expect_error<ConfigError>([text] { parse_size_range(text); }, message); };
    refused("1M:1K", "'1M:1K' ends below its begin (1024 < 1048576 bytes)");
    refused("1K:1M:1", "'1K:1M:1' has the factor 1 (at least 1.01)");
    refused("1K:1M:x", "'x' is not a number (such as 0.1 or 6e-4)");
    refused("0:1M", "'0:1M' has a size of 0 (at least 1 byte)");
    refused("1K:", "'' is not a size (such as 8, 64K, 1M or 2G; these are powers of two)");
    refused("1KB8", "'1KB8' is not a size (such as 8, 64K, 1M or 2G; these are powers of two)");
}
