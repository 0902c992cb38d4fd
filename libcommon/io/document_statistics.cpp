#include "io/document_statistics.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/units.hpp"

namespace plimsoll
{

namespace
{

constexpr double statistics_percents[] = {1, 10, 50, 90, 99};

nlohmann::ordered_json lengths_json(const LengthHistogram& lengths)
{
    nlohmann::ordered_json json;
    json["documents"] = lengths.num();
    json["sum"] = lengths.sum();
    json["smallest"] = lengths.smallest();
    for (const double percent : statistics_percents)
    {
        json[fmt::format("p{:g}", percent)] = lengths.percentile(percent);
    }
    json["largest"] = lengths.largest();
    json["mean"] = lengths.mean();
    return json;
}

std::string lengths_row(const char* name, const LengthHistogram& lengths)
{
    std::string text = fmt::format("{:<10} {:>11}", name, format_grouped(lengths.smallest()));
    for (const double percent : statistics_percents)
    {
        text += fmt::format(" {:>11}", format_grouped(lengths.percentile(percent)));
    }
    return text + fmt::format(" {:>13} {:>11}\n", format_grouped(lengths.largest()),
                              format_grouped(static_cast<std::int64_t>(std::llround(lengths.mean()))));
}

}  // namespace

std::size_t LengthHistogram::bin_of(std::int64_t length)
{
    const auto value = static_cast<std::uint64_t>(length);
    if (value < 2 * bins_per_octave) { return value; }
    const auto octave = static_cast<int>(std::bit_width(value)) - 5;
    const std::uint64_t within = (value >> octave) - bins_per_octave;
    return static_cast<std::size_t>(2 * bins_per_octave + (octave - 1) * bins_per_octave) + within;
}

std::int64_t LengthHistogram::begin_of(std::size_t bin)
{
    if (bin < 2 * bins_per_octave) { return static_cast<std::int64_t>(bin); }
    const std::size_t octave = (bin - 2 * bins_per_octave) / bins_per_octave + 1;
    const std::size_t within = (bin - 2 * bins_per_octave) % bins_per_octave;
    return static_cast<std::int64_t>((within + bins_per_octave) << octave);
}

std::int64_t LengthHistogram::bin_begin(std::int64_t length) { return begin_of(bin_of(length)); }

void LengthHistogram::add(std::int64_t length)
{
    EXPECT(length >= 0);
    ++bins_[bin_of(length)];
    ++num_;
    sum_ += length;
    smallest_ = std::min(smallest_, length);
    largest_ = std::max(largest_, length);
}

void LengthHistogram::merge(const LengthHistogram& other)
{
    for (std::size_t i = 0; i < bins_.size(); ++i) { bins_[i] += other.bins_[i]; }
    num_ += other.num_;
    sum_ += other.sum_;
    smallest_ = std::min(smallest_, other.smallest_);
    largest_ = std::max(largest_, other.largest_);
}

std::int64_t LengthHistogram::percentile(double percent) const
{
    if (num_ == 0) { return 0; }
    const double wanted = std::ceil(percent / 100 * static_cast<double>(num_));
    const auto rank = std::clamp(static_cast<std::int64_t>(wanted), std::int64_t{1}, num_);
    std::int64_t seen = 0;
    for (std::size_t bin = 0; bin < bins_.size(); ++bin)
    {
        seen += bins_[bin];
        if (seen >= rank) { return std::max(begin_of(bin), smallest_); }
    }
    return largest_;
}

std::string statistics_table(const DocumentStatistics& statistics)
{
    std::string text = fmt::format("{:<10} {:>11}", "lengths", "smallest");
    for (const double percent : statistics_percents) { text += fmt::format(" {:>11}", fmt::format("p{:g}", percent)); }
    text += fmt::format(" {:>13} {:>11}\n", "largest", "mean");
    return text + lengths_row("tokens", statistics.tokens) + lengths_row("text bytes", statistics.text_bytes);
}

std::string statistics_json(const DocumentStatistics& statistics)
{
    nlohmann::ordered_json json;
    json["tokens"] = lengths_json(statistics.tokens);
    json["text_bytes"] = lengths_json(statistics.text_bytes);
    return json.dump();
}

}  // namespace plimsoll
