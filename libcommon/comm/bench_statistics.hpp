#pragma once
/// Figures of a measured collective. Pure.
///
/// algbw = bytes of a rank's buffer / time; busbw = algbw x bus factor: the rate at which each link must move bytes whatever the
/// number of ranks, and so comparable with what a link can do (definitions as in nccl-tests, doc/PERFORMANCE.md).

#include <cstdint>
#include <string>
#include <vector>

namespace plimsoll
{

/// Nearest rank: the smallest value that at least `percent` % of all do not exceed. @pre values, 0 < percent <= 100
double percentile(std::vector<double> values, double percent);

/// Of an all-reduce: 2 (n - 1) / n; 0 for one rank, since nothing has to move. @pre ranks >= 1
double all_reduce_bus_factor(std::int64_t ranks);

/// Below so many iterations the 99th percentile is the largest value or nearly so.
constexpr std::int64_t least_iterations_for_p99 = 100;

/// Of the slowest rank in each iteration, in seconds.
struct TimeFigures
{
    double minimum = 0;
    double mean = 0;
    double p50 = 0;
    double p99 = 0;  ///< NaN with fewer than least_iterations_for_p99
    double maximum = 0;
};
/// @pre seconds is not empty
TimeFigures time_figures(const std::vector<double>& seconds);

/// Who was slowest how often.
struct SlowestRank
{
    std::int64_t rank = 0;
    double share = 0;  ///< of the iterations
    bool even = true;  ///< no more than chance and a half of what is left: at most 0.5 + 0.5 / n
};
/// `counts[r]`: iterations in which rank r took longest. @pre counts is not empty
SlowestRank slowest_rank(const std::vector<std::int64_t>& counts);

/// Sizes from `first` to `last` bytes, each `factor` times the one before.
struct SizeRange
{
    std::int64_t first = 1024;
    std::int64_t last = std::int64_t{64} << 20;
    double factor = 2;

    std::vector<std::int64_t> sizes() const;
};
/// "1K:64M" (doubling), "1M:8M:1.25" (by a factor), "4M" (one size); sizes as in parse_transfer_size().
/// @throws ConfigError
SizeRange parse_size_range(const std::string& text);
/// Reads back to the same range.
std::string size_range_text(const SizeRange& range);

}  // namespace plimsoll
