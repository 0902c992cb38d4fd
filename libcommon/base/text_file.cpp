#include "base/text_file.hpp"

#include <cctype>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/error.hpp"

namespace plimsoll
{

namespace
{

class Descriptor
{
  public:
    explicit Descriptor(int fd) : fd_(fd) {}
    ~Descriptor()
    {
        if (fd_ >= 0) { ::close(fd_); }
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    int get() const { return fd_; }

  private:
    int fd_;
};

}  // namespace

std::string system_reason(int error)
{
    std::string reason = std::strerror(error);
    if (!reason.empty()) { reason[0] = static_cast<char>(std::tolower(static_cast<unsigned char>(reason[0]))); }
    return reason;
}

std::string load_text(const std::string& path, std::string_view what)
{
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    VALIDATE(file.get() >= 0, ConfigError, "cannot read {} '{}' ({})", what, path, system_reason(errno));
    std::string text;
    char buffer[16384];
    while (true)
    {
        const ssize_t got = ::read(file.get(), buffer, sizeof buffer);
        if (got < 0 && errno == EINTR) { continue; }
        VALIDATE(got >= 0, ConfigError, "cannot read {} '{}' ({})", what, path, system_reason(errno));
        if (got == 0) { return text; }
        text.append(buffer, static_cast<std::size_t>(got));
    }
}

void replace_text(const std::string& path, std::string_view text)
{
    const std::string temporary = fmt::format("{}.tmp.{}", path, ::getpid());
    const auto refuse = [&](int error)
    {
        ::unlink(temporary.c_str());
        throw IoError(fmt::format("cannot write '{}' ({})", path, system_reason(error)));
    };
    {
        const Descriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
        if (file.get() < 0) { refuse(errno); }
        while (!text.empty())
        {
            const ssize_t put = ::write(file.get(), text.data(), text.size());
            if (put < 0 && errno == EINTR) { continue; }
            if (put < 0) { refuse(errno); }
            text.remove_prefix(static_cast<std::size_t>(put));
        }
        if (::fsync(file.get()) != 0) { refuse(errno); }
    }
    if (::rename(temporary.c_str(), path.c_str()) != 0) { refuse(errno); }
}

}  // namespace plimsoll
