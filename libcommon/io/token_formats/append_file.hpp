#pragma once
/// A file that is written from its begin to its end under another name, and appears whole.

#include <cstdint>
#include <string>
#include <vector>

#include "io/file.hpp"

namespace plimsoll
{

/// Memory: one buffer of 256 KiB. One thread.
class AppendFile
{
  public:
    enum class Kind
    {
        lasting,  ///< made as PATH.tmp; gets its name by publish(), and is removed without it
        spill     ///< has no name from the start, so that a killed process leaves none behind
    };

    explicit AppendFile(std::string path, Kind kind = Kind::lasting);
    ~AppendFile();
    AppendFile(const AppendFile&) = delete;
    AppendFile& operator=(const AppendFile&) = delete;

    const std::string& path() const { return path_; }
    void append(const void* data, std::int64_t bytes);
    /// Ids as `width` = 1, 2, 4 or 8 little-endian bytes each, cut without a check.
    void append_ids(const std::uint32_t* ids, std::int64_t num, std::int64_t width);
    std::int64_t bytes() const { return written_ + static_cast<std::int64_t>(buffer_.size()); }
    /// Overwrites bytes that were appended before.
    void patch(const void* data, std::int64_t bytes, std::int64_t offset);
    /// Bytes that were appended before.
    void read_at(void* data, std::int64_t bytes, std::int64_t offset);
    /// Appends all of another one.
    void append_all(AppendFile& other);
    /// Makes the content durable and closes it; the name is still the hidden one.
    void seal();
    /// Durable and visible; the caller syncs the directory.
    void publish();

  private:
    void flush();

    std::string path_;
    std::string hidden_;
    Kind kind_;
    File file_;
    std::vector<char> buffer_;
    std::int64_t written_ = 0;
    bool sealed_ = false;
    bool published_ = false;
};

}  // namespace plimsoll
