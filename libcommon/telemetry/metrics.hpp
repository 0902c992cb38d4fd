#pragma once
/// metrics.jsonl: one JSON object a line, appended; readers take the last row of a step.

#include <nlohmann/json.hpp>

#include <string>
#include <vector>

namespace plimsoll
{

/// Appends rows, each written with one call and so whole or torn at the end only. Not thread-safe.
class MetricsWriter
{
  public:
    /// Opens for appending; when the last line of an earlier attempt is torn, a new line is begun first.
    /// @throws IoError
    MetricsWriter(const std::string& path, int attempt);
    ~MetricsWriter();
    MetricsWriter(const MetricsWriter&) = delete;
    MetricsWriter& operator=(const MetricsWriter&) = delete;

    /// Adds "attempt" and "time" (UTC, ISO 8601); `row` is an object. NaN and Inf become the strings "nan", "inf",
    /// "-inf", since JSON has none. @throws IoError
    void write(nlohmann::ordered_json row);

  private:
    std::string path_;
    int fd_ = -1;
    int attempt_;
    bool is_torn_ = false;  ///< the file ends in the middle of a line
};

/// All whole rows in order; torn or foreign lines are skipped and counted in `num_skipped` when given. @throws IoError
std::vector<nlohmann::json> read_metrics(const std::string& path, int* num_skipped = nullptr);

}  // namespace plimsoll
