#include "base/signals.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include "base/error.hpp"
#include "base/text_file.hpp"

namespace plimsoll
{

namespace
{

constexpr std::int64_t same_press_ns = 1'000'000'000;
constexpr int wait_for_writer_ms = 300;

/// What end_at_once() writes, with room so that a handler allocates nothing.
struct LastWords
{
    std::array<char, 512> line{};
    std::array<char, 4096> path{};
    std::array<char, 4096 + 32> temporary{};
    std::array<char, 4096> text{};
};

// A handler can reach nothing but statics; lock-free atomics are all that it may touch. Of the two last words one is written
// while the other may be read.
std::atomic<int> first_signal{0};
std::atomic<std::int64_t> first_stop_ns{0};
std::atomic<bool> installed{false};
std::array<LastWords, 2> last_words;
std::atomic<int> current_words{-1};
static_assert(std::atomic<int>::is_always_lock_free && std::atomic<std::int64_t>::is_always_lock_free);

void put(int fd, const char* text)
{
    for (std::size_t left = std::strlen(text); left > 0;)
    {
        const ssize_t done = ::write(fd, text, left);
        if (done <= 0) { return; }
        text += done;
        left -= static_cast<std::size_t>(done);
    }
}

/// Nothing but calls that a handler may make.
[[noreturn]] void end_at_once()
{
    const int current = current_words.load();
    if (current >= 0)
    {
        const LastWords& words = last_words[static_cast<std::size_t>(current)];
        put(STDERR_FILENO, words.line.data());
        if (words.path[0] == '\0') { ::poll(nullptr, 0, wait_for_writer_ms); }
        else
        {
            const int fd = ::open(words.temporary.data(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
            if (fd >= 0)
            {
                put(fd, words.text.data());
                ::close(fd);
                ::rename(words.temporary.data(), words.path.data());
            }
        }
    }
    std::_Exit(1);
}

std::int64_t now_ns()
{
    timespec now = {};
    ::clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

extern "C" void note_signal(int number)
{
    int none = 0;
    first_signal.compare_exchange_strong(none, number);
    // USR2 is what a batch system sends ahead of its TERM: the save under way goes on.
    if (number != SIGINT && number != SIGTERM) { return; }
    const std::int64_t now = now_ns();
    std::int64_t first = 0;
    if (!first_stop_ns.compare_exchange_strong(first, now) && now - first >= same_press_ns) { end_at_once(); }
}

template<std::size_t Size>
bool copy_text(const std::string& text, std::array<char, Size>& out)
{
    if (text.size() >= Size) { return false; }
    std::copy(text.begin(), text.end(), out.begin());
    out[text.size()] = '\0';
    return true;
}

}  // namespace

StopSignals::StopSignals(Usr1 usr1)
{
    if (installed.exchange(true)) { throw InternalError("stop signals are installed twice"); }
    first_signal.store(0);
    first_stop_ns.store(0);
    current_words.store(-1);
    struct sigaction action = {};
    action.sa_handler = note_signal;
    action.sa_flags = SA_RESTART;  // a save must not fail with EINTR
    sigemptyset(&action.sa_mask);
    for (const int number : {SIGINT, SIGTERM, SIGUSR2, SIGUSR1})
    {
        if (number == SIGUSR1 && usr1 == Usr1::untouched) { continue; }
        Saved& saved = saved_[num_saved_];
        saved.number = number;
        if (::sigaction(number, &action, &saved.action) != 0)
        {
            installed.store(false);
            throw IoError(fmt::format("cannot handle signal {} ({})", number, system_reason(errno)));
        }
        ++num_saved_;
    }
}

StopSignals::~StopSignals()
{
    for (std::size_t i = 0; i < num_saved_; ++i) { ::sigaction(saved_[i].number, &saved_[i].action, nullptr); }
    installed.store(false);
}

bool StopSignals::requested() const { return first_signal.load() != 0; }

std::string StopSignals::name() const
{
    switch (first_signal.load())
    {
        case SIGINT: return "SIGINT";
        case SIGTERM: return "SIGTERM";
        case SIGUSR1: return "SIGUSR1";
        case SIGUSR2: return "SIGUSR2";
        default: return {};
    }
}

void StopSignals::set_last_words(const std::string& line, const std::string& path, const std::string& text) const
{
    const int next = current_words.load() == 0 ? 1 : 0;
    LastWords& words = last_words[static_cast<std::size_t>(next)];
    const std::string temporary = path + ".end";
    if (!copy_text(line, words.line)) { words.line[0] = '\0'; }
    if (!copy_text(path, words.path) || !copy_text(temporary, words.temporary) || !copy_text(text, words.text))
    {
        words.path[0] = '\0';
    }
    current_words.store(next);
}

}  // namespace plimsoll
