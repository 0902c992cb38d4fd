#include "io/file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <system_error>

#include "base/error.hpp"

namespace plimsoll
{

namespace
{

// What the environment asks to go wrong; the default is nothing.
struct Faults
{
    std::string crash_name;
    std::int64_t crash_count = 1;
    std::int64_t fail_after = std::numeric_limits<std::int64_t>::max();
    int fail_errno = ENOSPC;
    bool no_exchange = false;
    std::atomic<std::int64_t> written{0};
    std::atomic<std::int64_t> reached{0};
};

const char* environment(const char* name)
{
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
}

void load_faults(Faults& faults)
{
    faults.crash_name = environment("PLIMSOLL_CRASH_POINT");
    faults.crash_count = 1;
    const std::size_t colon = faults.crash_name.rfind(':');
    if (colon != std::string::npos)
    {
        faults.crash_count = std::atoll(faults.crash_name.c_str() + colon + 1);
        faults.crash_name.resize(colon);
    }
    faults.fail_after = std::numeric_limits<std::int64_t>::max();
    const std::string space = environment("PLIMSOLL_FAULT_ENOSPC_AFTER");
    const std::string quota = environment("PLIMSOLL_FAULT_EDQUOT_AFTER");
    if (!space.empty() || !quota.empty())
    {
        faults.fail_after = std::atoll(space.empty() ? quota.c_str() : space.c_str());
        faults.fail_errno = space.empty() ? EDQUOT : ENOSPC;
    }
    faults.no_exchange = std::string_view(environment("PLIMSOLL_FAULT_NO_EXCHANGE")) == "1";
    faults.written = 0;
    faults.reached = 0;
}

Faults& faults()
{
    static Faults instance;
    static const bool loaded = (load_faults(instance), true);
    (void)loaded;
    return instance;
}

std::string reason_of(int error_number)
{
    std::string reason = std::system_category().message(error_number);
    if (!reason.empty() && reason[0] >= 'A' && reason[0] <= 'Z') { reason[0] = static_cast<char>(reason[0] + 32); }
    return reason;
}

int open_flags(File::Mode mode, File::Caching caching)
{
    int flags = O_CLOEXEC;
    switch (mode)
    {
        case File::Mode::read: flags |= O_RDONLY; break;
        case File::Mode::create: flags |= O_RDWR | O_CREAT | O_TRUNC; break;
        case File::Mode::read_write: flags |= O_RDWR; break;
    }
    if (caching == File::Caching::direct) { flags |= O_DIRECT; }
    return flags;
}

}  // namespace

std::string parent_of(const std::string& path)
{
    const std::string parent = std::filesystem::path(path).parent_path().string();
    return parent.empty() ? "." : parent;
}

void throw_io_error(std::string_view action, const std::string& path, int error_number)
{
    throw IoError(fmt::format("cannot {} '{}' ({})", action, path, reason_of(error_number)));
}

void crash_point(std::string_view name)
{
    Faults& plan = faults();
    if (plan.crash_name.empty() || plan.crash_name != name) { return; }
    if (++plan.reached == plan.crash_count) { ::kill(::getpid(), SIGKILL); }
}

void reload_faults()
{
    load_faults(faults());
}

File::File(const std::string& path, Mode mode, Caching caching) : path_(path)
{
    descriptor_ = ::open(path.c_str(), open_flags(mode, caching), 0666);
    if (descriptor_ < 0) { throw_io_error(mode == Mode::create ? "create" : "open", path, errno); }
    struct stat status = {};
    // A directory opens fine for reading and fails at the first read; say it here.
    if (::fstat(descriptor_, &status) == 0 && S_ISDIR(status.st_mode))
    {
        ::close(descriptor_);
        descriptor_ = -1;
        throw_io_error("open", path, EISDIR);
    }
}

File::~File()
{
    if (descriptor_ >= 0) { ::close(descriptor_); }
}

File::File(File&& other) noexcept : path_(std::move(other.path_)), descriptor_(other.descriptor_)
{
    other.descriptor_ = -1;
}

File& File::operator=(File&& other) noexcept
{
    std::swap(path_, other.path_);
    std::swap(descriptor_, other.descriptor_);
    return *this;
}

std::int64_t File::size() const
{
    struct stat status = {};
    if (::fstat(descriptor_, &status) != 0) { throw_io_error("examine", path_, errno); }
    return status.st_size;
}

void File::read_at(void* data, std::int64_t bytes, std::int64_t offset) const
{
    auto* cursor = static_cast<char*>(data);
    std::int64_t done = 0;
    while (done < bytes)
    {
        const ssize_t got = ::pread(descriptor_, cursor + done, static_cast<std::size_t>(bytes - done), offset + done);
        if (got < 0 && errno == EINTR) { continue; }
        if (got < 0) { throw_io_error("read", path_, errno); }
        if (got == 0)
        {
            throw FormatError(fmt::format("{}: truncated file ({} bytes wanted at offset {}, the file has {})", path_,
                                          bytes, offset, size()));
        }
        done += got;
    }
}

void File::write_at(const void* data, std::int64_t bytes, std::int64_t offset)
{
    Faults& plan = faults();
    if (plan.fail_after != std::numeric_limits<std::int64_t>::max() && (plan.written += bytes) > plan.fail_after)
    {
        throw_io_error("write", path_, plan.fail_errno);
    }
    const auto* cursor = static_cast<const char*>(data);
    std::int64_t done = 0;
    while (done < bytes)
    {
        const ssize_t put = ::pwrite(descriptor_, cursor + done, static_cast<std::size_t>(bytes - done), offset + done);
        if (put < 0 && errno == EINTR) { continue; }
        if (put < 0) { throw_io_error("write", path_, errno); }
        done += put;
    }
}

void File::reserve(std::int64_t bytes)
{
    if (bytes <= 0) { return; }
    int status = 0;
    do
    {
        status = ::fallocate(descriptor_, 0, 0, bytes);
    } while (status != 0 && errno == EINTR);
    // posix_fallocate() would write every block where the file system cannot reserve: not wanted.
    if (status != 0 && errno != EOPNOTSUPP && errno != ENOSYS && errno != EINVAL)
    {
        throw_io_error("reserve space for", path_, errno);
    }
}

void File::sync()
{
    if (::fdatasync(descriptor_) != 0) { throw_io_error("sync", path_, errno); }
}

void File::close()
{
    if (descriptor_ < 0) { return; }
    const int status = ::close(descriptor_);
    descriptor_ = -1;
    if (status != 0 && errno != EINTR) { throw_io_error("close", path_, errno); }
}

std::string read_text_file(const std::string& path)
{
    const File file(path, File::Mode::read);
    std::string text;
    std::array<char, 65536> piece{};
    // Read to the end rather than to the size: pipes and /proc have none.
    while (true)
    {
        const ssize_t got = ::read(file.descriptor(), piece.data(), piece.size());
        if (got < 0 && errno == EINTR) { continue; }
        if (got < 0) { throw_io_error("read", path, errno); }
        if (got == 0) { return text; }
        text.append(piece.data(), static_cast<std::size_t>(got));
    }
}

void write_file(const std::string& path, std::string_view content)
{
    File file(path, File::Mode::create);
    file.write_at(content.data(), static_cast<std::int64_t>(content.size()), 0);
    crash_point("file.written");
    file.sync();
    file.close();
    crash_point("file.synced");
}

void write_file_atomically(const std::string& path, std::string_view content)
{
    const std::string temporary = fmt::format("{}.tmp{}", path, ::getpid());
    try
    {
        write_file(temporary, content);
        rename_path(temporary, path);
    }
    catch (...)
    {
        ::unlink(temporary.c_str());
        throw;
    }
    crash_point("file.renamed");
    sync_directory(parent_of(path));
}

void sync_directory(const std::string& path)
{
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) { throw_io_error("open", path, errno); }
    const int status = ::fsync(descriptor);
    const int error_number = errno;
    ::close(descriptor);
    // Some network file systems cannot sync a directory and say EINVAL; their renames are durable on their own terms.
    if (status != 0 && error_number != EINVAL) { throw_io_error("sync", path, error_number); }
}

bool path_exists(const std::string& path)
{
    struct stat status = {};
    return ::lstat(path.c_str(), &status) == 0;
}

bool is_directory(const std::string& path)
{
    struct stat status = {};
    return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

std::int64_t file_size(const std::string& path)
{
    struct stat status = {};
    return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) ? status.st_size : -1;
}

std::vector<std::string> list_directory(const std::string& path)
{
    DIR* directory = ::opendir(path.c_str());
    if (directory == nullptr) { throw_io_error("list", path, errno); }
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = ::readdir(directory))
    {
        const std::string_view name = entry->d_name;
        if (name != "." && name != "..") { names.emplace_back(name); }
        errno = 0;
    }
    const int error_number = errno;
    ::closedir(directory);
    if (error_number != 0) { throw_io_error("list", path, error_number); }
    std::sort(names.begin(), names.end());
    return names;
}

void make_directories(const std::string& path)
{
    std::error_code error;
    std::filesystem::create_directories(path, error);
    if (error) { throw_io_error("create directory", path, error.value()); }
}

void rename_path(const std::string& from, const std::string& to)
{
    if (::rename(from.c_str(), to.c_str()) != 0)
    {
        throw IoError(fmt::format("cannot rename '{}' to '{}' ({})", from, to, reason_of(errno)));
    }
}

bool exchange_paths(const std::string& a, const std::string& b)
{
    if (faults().no_exchange) { return false; }
    if (::renameat2(AT_FDCWD, a.c_str(), AT_FDCWD, b.c_str(), RENAME_EXCHANGE) == 0) { return true; }
    if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) { return false; }
    throw IoError(fmt::format("cannot exchange '{}' and '{}' ({})", a, b, reason_of(errno)));
}

void remove_tree(const std::string& path)
{
    std::error_code error;
    std::filesystem::remove_all(path, error);
    if (error) { throw_io_error("remove", path, error.value()); }
}

std::int64_t free_bytes(const std::string& path)
{
    struct statvfs status = {};
    if (::statvfs(path.c_str(), &status) != 0) { throw_io_error("examine", path, errno); }
    return static_cast<std::int64_t>(status.f_bavail) * static_cast<std::int64_t>(status.f_frsize);
}

}  // namespace plimsoll
