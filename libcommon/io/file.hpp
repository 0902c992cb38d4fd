#pragma once
/// POSIX files with errors as IoError ("cannot write 'x' (no space left on device)"), and the write-then-rename habit.
/// Every byte that Plimsoll makes durable goes through here, so that faults can be injected in one place.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace plimsoll
{

/// An open file descriptor; closes itself. Positional reads and writes only; safe from several threads on disjoint ranges.
class File
{
  public:
    enum class Mode { read, create, read_write };
    File(const std::string& path, Mode mode);
    ~File();
    File(File&& other) noexcept;
    File& operator=(File&& other) noexcept;
    File(const File&) = delete;
    File& operator=(const File&) = delete;

    const std::string& path() const { return path_; }
    int descriptor() const { return descriptor_; }
    std::int64_t size() const;
    /// Reads exactly `bytes`. @throws FormatError "x: truncated ..." at end of file, IoError otherwise.
    void read_at(void* data, std::int64_t bytes, std::int64_t offset) const;
    void write_at(const void* data, std::int64_t bytes, std::int64_t offset);
    void sync();  ///< fdatasync
    void close(); ///< reports the error that a destructor would swallow

  private:
    std::string path_;
    int descriptor_ = -1;
};

/// Whole file as text. @throws IoError naming path and reason.
std::string read_text_file(const std::string& path);

/// Writes `path` so that a reader sees the old or the new content, never a part: tmp, fsync, rename, fsync of the parent.
void write_file_atomically(const std::string& path, std::string_view content);

void sync_directory(const std::string& path);

/// Called by crash tests and fault injection: each durable step reports its name here before it is done.
/// PLIMSOLL_CRASH_POINT=name[:n] in the environment kills the process by SIGKILL at the n-th time (default 1) that the
/// point is reached; unset, it is one comparison. Names: docs/checkpoint_format.md.
void crash_point(std::string_view name);

/// CRC32C of a buffer, continued from `crc` (0 to start).
std::uint32_t crc32c(const void* data, std::int64_t bytes, std::uint32_t crc = 0);
/// CRC of a||b from the CRCs of a and b and the length of b.
std::uint32_t crc32c_combine(std::uint32_t crc_a, std::uint32_t crc_b, std::int64_t bytes_b);

}  // namespace plimsoll
