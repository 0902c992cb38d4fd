#pragma once
/// POSIX files with errors as IoError ("cannot write 'x' (no space left on device)"), and the write-then-rename habit.
/// Every byte that Plimsoll makes durable goes through here, so that faults can be injected in one place.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll
{

/// An open file descriptor; closes itself. Positional reads and writes only; safe from several threads on disjoint ranges.
class File
{
  public:
    enum class Mode { read, create, read_write };
    /// `direct` asks for O_DIRECT: every address, length and offset must then be a multiple of direct_alignment.
    enum class Caching { buffered, direct };
    static constexpr std::int64_t direct_alignment = 4096;

    /// `create` truncates an existing file. @throws IoError, also where the file system refuses O_DIRECT.
    File(const std::string& path, Mode mode, Caching caching = Caching::buffered);
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
    /// Reserves disk blocks for [0, bytes), so that a full disk shows before the first write; the size may grow. Does
    /// nothing where the file system cannot reserve. @throws IoError when there is not enough space.
    void reserve(std::int64_t bytes);
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

/// Writes a new file (or over an old one) and syncs it: for places that nobody looks at yet.
void write_file(const std::string& path, std::string_view content);

void sync_directory(const std::string& path);

/// "/a/b" -> "/a", "a" -> ".".
std::string parent_of(const std::string& path);
bool path_exists(const std::string& path);
bool is_directory(const std::string& path);
/// Size of a regular file; -1 when there is none.
std::int64_t file_size(const std::string& path);
/// Names in a directory, sorted, without "." and "..". @throws IoError
std::vector<std::string> list_directory(const std::string& path);
/// Makes a directory and its parents; an existing one is fine. @throws IoError
void make_directories(const std::string& path);
/// Renames within one file system; replaces a file or an empty directory. @throws IoError
void rename_path(const std::string& from, const std::string& to);
/// Swaps two existing paths in one instant. False where kernel or file system cannot. @throws IoError otherwise.
bool exchange_paths(const std::string& a, const std::string& b);
/// Removes a file or a directory with all that is in it; nothing there is fine. @throws IoError
void remove_tree(const std::string& path);
/// Bytes that this user may still write on the file system of `path`, which exists.
std::int64_t free_bytes(const std::string& path);

/// The one wording of a failed system call: IoError "cannot write 'x' (no space left on device)". `action` is a verb.
[[noreturn]] void throw_io_error(std::string_view action, const std::string& path, int error_number);

/// Called by crash tests and fault injection: each durable step reports its name here before it is done.
/// PLIMSOLL_CRASH_POINT=name[:n] in the environment kills the process by SIGKILL at the n-th time (default 1) that the
/// point is reached; unset, it is one comparison. Names: docs/checkpoint_format.md.
/// PLIMSOLL_FAULT_ENOSPC_AFTER=bytes lets File::write_at() fail as if the disk were full once it has written that many
/// bytes, PLIMSOLL_FAULT_EDQUOT_AFTER=bytes as if a quota were used up; PLIMSOLL_FAULT_NO_EXCHANGE=1 lets exchange_paths() say that it cannot.
void crash_point(std::string_view name);
/// Reads the environment again (it is read once, at the first use). Not thread-safe: for tests.
void reload_faults();

/// CRC32C of a buffer, continued from `crc` (0 to start).
std::uint32_t crc32c(const void* data, std::int64_t bytes, std::uint32_t crc = 0);
/// CRC of a||b from the CRCs of a and b and the length of b.
std::uint32_t crc32c_combine(std::uint32_t crc_a, std::uint32_t crc_b, std::int64_t bytes_b);

}  // namespace plimsoll
