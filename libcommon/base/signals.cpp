#include "base/signals.hpp"

#include <atomic>
#include <cerrno>

#include "base/error.hpp"
#include "base/text_file.hpp"

namespace plimsoll
{

namespace
{

// A handler can reach nothing but statics; lock-free atomics are all that it may touch.
std::atomic<int> first_signal{0};
std::atomic<bool> installed{false};
static_assert(std::atomic<int>::is_always_lock_free);

extern "C" void note_signal(int number)
{
    int none = 0;
    first_signal.compare_exchange_strong(none, number);
}

}  // namespace

StopSignals::StopSignals(Usr1 usr1)
{
    if (installed.exchange(true)) { throw InternalError("stop signals are installed twice"); }
    first_signal.store(0);
    struct sigaction action = {};
    action.sa_handler = note_signal;
    action.sa_flags = SA_RESTART;  // a save must not fail with EINTR
    sigemptyset(&action.sa_mask);
    for (const int number : {SIGTERM, SIGUSR2, SIGUSR1})
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
        case SIGTERM: return "SIGTERM";
        case SIGUSR1: return "SIGUSR1";
        case SIGUSR2: return "SIGUSR2";
        default: return {};
    }
}

}  // namespace plimsoll
