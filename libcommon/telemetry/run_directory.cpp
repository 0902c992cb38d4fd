#include "telemetry/run_directory.hpp"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <string_view>
#include <sys/file.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/output_folder.hpp"
#include "base/text_file.hpp"
#include "telemetry/host.hpp"

namespace plimsoll
{

namespace fs = std::filesystem;

namespace
{

/// What the lock file says about the run that holds it, or held it last.
struct Holder
{
    int attempt = 0;
    int process = 0;
    std::string host;
};

Holder read_holder(int fd)
{
    char text[512] = {};
    char host[256] = {};
    Holder holder;
    if (::pread(fd, text, sizeof text - 1, 0) <= 0) { return holder; }
    if (std::sscanf(text, "attempt %d process %d host %255s", &holder.attempt, &holder.process, host) == 3)
    {
        holder.host = host;
    }
    return holder;
}

void write_holder(int fd, const std::string& path, const Holder& holder)
{
    const std::string text =
        fmt::format("attempt {} process {} host {}\n", holder.attempt, holder.process, holder.host);
    const auto size = static_cast<ssize_t>(text.size());
    if (::pwrite(fd, text.data(), text.size(), 0) != size || ::ftruncate(fd, size) != 0)
    {
        throw IoError(fmt::format("cannot write '{}' ({})", path, system_reason(errno)));
    }
}

void make_folder(const std::string& path)
{
    std::error_code error;
    fs::create_directories(path, error);
    VALIDATE(!error, IoError, "cannot make folder '{}' ({})", path, system_reason(error.value()));
}

/// @throws UsageError: another run has it
[[noreturn]] void refuse_held(const std::string& path, const Holder& holder)
{
    throw UsageError(fmt::format("run directory '{}' is in use (process {} on {}). wait for that run, stop it, or choose "
                                 "another run.name",
                                 path, holder.process, holder.host.empty() ? "an unknown host" : holder.host));
}

void require_writable_run(const std::string& path) { require_writable(path, "choose another run.dir"); }

}  // namespace

RunDirectory::RunDirectory(const std::string& path) : path_(path), made_(first_missing_folder(path))
{
    require_writable_run(path);
    try
    {
        make_folder(checkpoints());
        make_folder(logs());
        lock();
    }
    catch (...)
    {
        remove_made();
        throw;
    }
}

void RunDirectory::check(const std::string& path)
{
    require_writable_run(path);
    const int fd = ::open((path + "/lock").c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) { return; }
    const Holder holder = read_holder(fd);
    const bool is_held = ::flock(fd, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    ::close(fd);
    if (is_held) { refuse_held(path, holder); }
}

RunDirectory::~RunDirectory()
{
    if (!has_begun_) { remove_made(); }
    ::close(lock_fd_);
}

void RunDirectory::lock()
{
    const std::string lock = path_ + "/lock";
    lock_fd_ = ::open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    VALIDATE(lock_fd_ >= 0, IoError, "cannot open '{}' ({})", lock, system_reason(errno));
    try
    {
        Holder holder = read_holder(lock_fd_);
        if (::flock(lock_fd_, LOCK_EX | LOCK_NB) != 0)
        {
            const int reason = errno;
            if (reason == EWOULDBLOCK) { refuse_held(path_, holder); }
            VALIDATE(reason == ENOTSUP || reason == ENOSYS || reason == ENOLCK, IoError, "cannot lock '{}' ({})", lock,
                     system_reason(reason));
            is_locked_ = false;
        }
        holder = read_holder(lock_fd_);
        attempt_ = holder.attempt + 1;
        holder.process = static_cast<int>(::getpid());
        holder.host = host_name();
        write_holder(lock_fd_, lock, holder);
    }
    catch (...)
    {
        ::close(lock_fd_);
        throw;
    }
}

void RunDirectory::begin_attempt()
{
    EXPECT(!has_begun_);
    write_holder(lock_fd_, path_ + "/lock", {attempt_, static_cast<int>(::getpid()), host_name()});
    has_begun_ = true;
}

void RunDirectory::remove_made()
{
    if (made_.empty()) { return; }
    std::error_code error;
    for (const std::string& made : {checkpoints(), logs(), path_ + "/lock"}) { fs::remove(made, error); }
    // Only what is empty goes: another start may have made its directory beside this one by now.
    const fs::path outermost(made_);
    for (fs::path at = fs::absolute(path_).lexically_normal(); fs::remove(at, error) && at != outermost;)
    {
        at = at.parent_path();
    }
}

std::vector<ConfigChange> RunDirectory::changes(const std::string& snapshot) const
{
    if (!fs::exists(run_file())) { return {}; }
    return compare_snapshots(load_text(run_file(), "run file"), snapshot);
}

void RunDirectory::write_snapshot(const std::string& snapshot)
{
    if (fs::exists(run_file()))
    {
        if (changes(snapshot).empty()) { return; }
        int number = 1;
        while (fs::exists(fmt::format("{}.{}", run_file(), number))) { ++number; }
        const std::string kept = fmt::format("{}.{}", run_file(), number);
        // A copy, not a rename: run.ini is there at every moment.
        std::error_code error;
        fs::copy_file(run_file(), kept, error);
        VALIDATE(!error, IoError, "cannot write '{}' ({})", kept, system_reason(error.value()));
    }
    replace_text(run_file(), snapshot);
}

}  // namespace plimsoll
