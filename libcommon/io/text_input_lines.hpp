#pragma once
/// Lines of a file, ended by LF alone, with memory for the longest line only.

#include <cstdint>
#include <string>
#include <vector>

#include "io/file.hpp"

namespace plimsoll
{

/// One line without its LF. `data` may be changed in place and has at least LineReader::padding readable bytes behind
/// it.
struct TextLine
{
    char* data = nullptr;
    std::int64_t bytes = 0;
    std::int64_t number = 0;  ///< from 1
    std::int64_t offset = 0;  ///< where it starts in the file
    bool ended = true;        ///< false for a last line without LF
    bool too_long = false;    ///< longer than allowed: skipped, `bytes` is 0
};

class LineReader
{
  public:
    static constexpr std::int64_t chunk_bytes = 1 << 20;
    static constexpr std::int64_t padding = 64;

    LineReader(const std::string& path, std::int64_t max_line_bytes);

    /// False at the end of the file. The line holds until the next call.
    bool next(TextLine& line);
    /// Bytes taken from the file so far.
    std::int64_t bytes_read() const { return read_; }
    double read_seconds() const { return read_seconds_; }

  private:
    bool refill();
    void skip_long_line();

    File file_;
    std::int64_t max_line_bytes_ = 0;
    std::int64_t size_ = 0;
    std::int64_t read_ = 0;
    std::vector<char> buffer_;
    std::int64_t begin_ = 0;  ///< unread bytes of the buffer: [begin_, end_)
    std::int64_t end_ = 0;
    std::int64_t number_ = 0;
    double read_seconds_ = 0;
};

}  // namespace plimsoll
