#pragma once
/// Reads metrics.jsonl row by row in constant memory, also while a run is writing it.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace plimsoll
{

/// The rows that the file had when it was opened. A line torn by a kill (an object without its end) is skipped and counted;
/// anything else that is no JSON object is an error that names file and line. Not thread-safe.
class MetricsReader
{
  public:
    static constexpr std::size_t max_line_bytes = std::size_t{1} << 20;

    /// @throws ConfigError "cannot read metrics file 'PATH' (no such file or directory)"
    explicit MetricsReader(const std::string& path);
    ~MetricsReader();
    MetricsReader(const MetricsReader&) = delete;
    MetricsReader& operator=(const MetricsReader&) = delete;

    /// The next row; false at the end. @throws FormatError "PATH:17: not a JSON object (...)"
    bool next(nlohmann::ordered_json& row);
    /// Starts again; the end stays where it was.
    void rewind();

    std::int64_t line() const { return line_; }  ///< of the row that next() gave, from 1
    std::int64_t num_torn() const { return num_torn_; }
    std::string where() const { return path_ + ":" + std::to_string(line_); }

  private:
    bool next_line(std::string& text);

    std::string path_;
    int fd_ = -1;
    std::int64_t end_ = 0;
    std::int64_t position_ = 0;  ///< in the file, of what follows buffer_
    std::string buffer_;
    std::size_t at_ = 0;  ///< in buffer_
    std::int64_t line_ = 0;
    std::int64_t num_torn_ = 0;
};

}  // namespace plimsoll
