#pragma once
/// Lengths and kinds of documents, in a few kilobytes whatever their number, and the same whichever thread counted which.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace plimsoll
{

/// A histogram with 16 bins to a factor of two: a percentile is at most 1/16 below the true value, and exact below 32.
class LengthHistogram
{
  public:
    static constexpr int bins_per_octave = 16;

    void add(std::int64_t length);
    void merge(const LengthHistogram& other);

    std::int64_t num() const { return num_; }
    std::int64_t sum() const { return sum_; }
    std::int64_t smallest() const { return num_ == 0 ? 0 : smallest_; }
    std::int64_t largest() const { return largest_; }
    double mean() const { return num_ == 0 ? 0 : static_cast<double>(sum_) / static_cast<double>(num_); }
    /// The value that `percent` of the documents are at most as long as, rounded down to its bin; 0 without documents.
    std::int64_t percentile(double percent) const;

    /// Begin of the bin of a length, for tests and docs.
    static std::int64_t bin_begin(std::int64_t length);

  private:
    static constexpr std::size_t num_bins = 32 + 58 * bins_per_octave;
    static std::size_t bin_of(std::int64_t length);
    static std::int64_t begin_of(std::size_t bin);

    std::array<std::int64_t, num_bins> bins_{};
    std::int64_t num_ = 0;
    std::int64_t sum_ = 0;
    std::int64_t smallest_ = INT64_MAX;
    std::int64_t largest_ = 0;
};

/// Of documents that are written: lengths in tokens and in bytes. Mergeable; one thread each.
struct DocumentStatistics
{
    LengthHistogram tokens;
    LengthHistogram text_bytes;

    void add(std::int64_t num_tokens, std::int64_t bytes)
    {
        tokens.add(num_tokens);
        text_bytes.add(bytes);
    }
    void merge(const DocumentStatistics& other)
    {
        tokens.merge(other.tokens);
        text_bytes.merge(other.text_bytes);
    }
};

/// Two rows of a table with its head: smallest, p1, p10, p50, p90, p99, largest, mean.
std::string statistics_table(const DocumentStatistics& statistics);
/// The same as an object of JSON, {"tokens": {...}, "text_bytes": {...}}.
std::string statistics_json(const DocumentStatistics& statistics);

}  // namespace plimsoll
