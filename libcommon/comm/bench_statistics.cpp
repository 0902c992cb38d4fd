#include "comm/bench_statistics.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "base/units.hpp"

namespace plimsoll
{

double percentile(std::vector<double> values, double percent)
{
    EXPECT(!values.empty() && percent > 0 && percent <= 100);
    // A hair less, since 0.99 * 100 is a little more than 99 in binary.
    const double wanted = std::ceil(percent / 100 * static_cast<double>(values.size()) - 1e-9);
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::max(wanted, 1.0)) - 1;
    std::nth_element(values.begin(), at, values.end());
    return *at;
}

double all_reduce_bus_factor(std::int64_t ranks)
{
    EXPECT(ranks >= 1);
    return 2.0 * static_cast<double>(ranks - 1) / static_cast<double>(ranks);
}

TimeFigures time_figures(const std::vector<double>& seconds)
{
    EXPECT(!seconds.empty());
    TimeFigures figures;
    figures.minimum = *std::min_element(seconds.begin(), seconds.end());
    figures.maximum = *std::max_element(seconds.begin(), seconds.end());
    double sum = 0;
    for (const double value : seconds) { sum += value; }
    figures.mean = sum / static_cast<double>(seconds.size());
    figures.p50 = percentile(seconds, 50);
    const bool enough = static_cast<std::int64_t>(seconds.size()) >= least_iterations_for_p99;
    figures.p99 = enough ? percentile(seconds, 99) : std::numeric_limits<double>::quiet_NaN();
    return figures;
}

SlowestRank slowest_rank(const std::vector<std::int64_t>& counts)
{
    EXPECT(!counts.empty());
    const auto most = std::max_element(counts.begin(), counts.end());
    std::int64_t sum = 0;
    for (const std::int64_t count : counts) { sum += count; }
    SlowestRank slowest;
    slowest.rank = most - counts.begin();
    slowest.share = sum > 0 ? static_cast<double>(*most) / static_cast<double>(sum) : 0;
    slowest.even = slowest.share <= 0.5 + 0.5 / static_cast<double>(counts.size());
    return slowest;
}

std::vector<std::int64_t> SizeRange::sizes() const
{
    std::vector<std::int64_t> all;
    for (double size = static_cast<double>(first); size <= static_cast<double>(last); size *= factor)
    {
        const auto bytes = static_cast<std::int64_t>(size);
        if (all.empty() || bytes > all.back()) { all.push_back(bytes); }
    }
    return all;
}

SizeRange parse_size_range(const std::string& text)
{
    SizeRange range;
    const std::size_t first_colon = text.find(':');
    range.first = parse_transfer_size(text.substr(0, first_colon));
    range.last = range.first;
    VALIDATE(range.first >= 1, ConfigError, "'{}' has a size of 0 (at least 1 byte)", text);
    if (first_colon == std::string::npos) { return range; }
    const std::size_t second_colon = text.find(':', first_colon + 1);
    range.last = parse_transfer_size(text.substr(first_colon + 1, second_colon - first_colon - 1));
    VALIDATE(range.last >= range.first, ConfigError, "'{}' ends below its begin ({} < {} bytes)", text, range.last,
             range.first);
    if (second_colon == std::string::npos) { return range; }
    range.factor = parse_number(text.substr(second_colon + 1));
    VALIDATE(range.factor >= 1.01, ConfigError, "'{}' has the factor {} (at least 1.01)", text,
             number_text(range.factor));
    return range;
}

std::string size_range_text(const SizeRange& range)
{
    if (range.first == range.last) { return std::to_string(range.first); }
    const std::string text = fmt::format("{}:{}", range.first, range.last);
    return range.factor == 2 ? text : text + ":" + number_text(range.factor);
}

}  // namespace plimsoll
