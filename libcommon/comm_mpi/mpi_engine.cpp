#include "comm_mpi/mpi_engine.hpp"

#ifdef PLIMSOLL_WITH_MPI

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>

#include "base/error.hpp"

namespace plimsoll::mpi
{
namespace
{

constexpr std::int64_t largest_message = std::int64_t{1} << 30;
constexpr auto progress_time = std::chrono::microseconds(50);

/// Idle rounds: first test again at once, then let others run, then sleep: ranks may outnumber cores.
void rest(int idle)
{
    constexpr int num_spins = 20;
    constexpr int num_yields = 200;
    if (idle < num_spins) { return; }
    if (idle < num_yields)
    {
        ::sched_yield();
        return;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(std::min(20 * (idle - num_yields + 1), 500)));
}

}  // namespace

void check(int code, const char* what)
{
    if (code == MPI_SUCCESS) { return; }
    char text[MPI_MAX_ERROR_STRING] = {};
    int length = 0;
    MPI_Error_string(code, text, &length);
    std::string words(text, static_cast<std::size_t>(length));
    std::replace(words.begin(), words.end(), '\n', ' ');
    throw CommError(fmt::format("{} failed ({})", what, words));
}

void Operation::finish() { engine_.wait(*this); }

void Operation::abandon() noexcept
{
    std::string text;
    if (std::uncaught_exceptions() == 0)
    {
        // The buffers are about to go while others need them: complete it, and say so where an exception can be thrown.
        try
        {
            text = fmt::format("{} of '{}' #{} was never waited for", name_, watchdog_->group(), sequence_);
            engine_.wait(*this);
        }
        catch (const std::exception&)
        {
            is_done_ = false;
        }
    }
    // What was posted into the buffers is taken back; what is being sent cannot be: the job ends.
    for (MPI_Request& request : requests_)
    {
        if (request == MPI_REQUEST_NULL) { continue; }
        MPI_Cancel(&request);
        MPI_Request_free(&request);
    }
    requests_.clear();
    engine_.forget(*this, std::move(text));
}

bool Operation::advance()
{
    if (is_done_) { return false; }
    if (!requests_.empty())
    {
        int all = 0;
        check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &all, MPI_STATUSES_IGNORE), name_);
        if (all == 0) { return false; }
        requests_.clear();
    }
    // A round without a message is complete at once.
    while (requests_.empty())
    {
        if (!next_round())
        {
            is_done_ = true;
            return true;
        }
    }
    return true;
}

void Operation::post_send(MPI_Comm comm, const void* data, std::int64_t bytes, int peer, int tag)
{
    for (std::int64_t at = 0; at == 0 || at < bytes; at += largest_message)
    {
        MPI_Request request = MPI_REQUEST_NULL;
        check(MPI_Isend(static_cast<const char*>(data) + at, static_cast<int>(std::min(bytes - at, largest_message)), MPI_BYTE,
                        peer, tag, comm, &request),
              name_);
        requests_.push_back(request);
    }
}

void Operation::post_recv(MPI_Comm comm, void* data, std::int64_t bytes, int peer, int tag)
{
    for (std::int64_t at = 0; at == 0 || at < bytes; at += largest_message)
    {
        MPI_Request request = MPI_REQUEST_NULL;
        check(MPI_Irecv(static_cast<char*>(data) + at, static_cast<int>(std::min(bytes - at, largest_message)), MPI_BYTE, peer,
                        tag, comm, &request),
              name_);
        requests_.push_back(request);
    }
}

void Engine::enter() const
{
    if (!forgotten_.empty()) { throw InternalError(forgotten_); }
}

void Engine::issue(const std::shared_ptr<Operation>& operation)
{
    activity_->begin(operation->name(), operation->number(), operation->watchdog().group(), operation->sequence());
    under_way_.push_back(operation);
    operation->advance();
}

bool Engine::advance_all()
{
    bool moved = false;
    for (std::size_t i = 0; i < under_way_.size();)
    {
        const std::shared_ptr<Operation> operation = under_way_[i];
        moved = operation->advance() || moved;
        if (operation->is_done()) { under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(i)); }
        else { ++i; }
    }
    return moved;
}

void Engine::wait(Operation& operation)
{
    Watchdog& watchdog = operation.watchdog();
    activity_->begin(operation.name(), operation.number(), watchdog.group(), operation.sequence());
    watchdog.start(operation.name(), operation.number(), operation.sequence());
    int idle = 0;
    while (!operation.is_done())
    {
        if (advance_all())
        {
            idle = 0;
            continue;
        }
        if (operation.is_done()) { break; }
        watchdog.check();
        rest(idle++);
    }
    under_way_.erase(std::remove_if(under_way_.begin(), under_way_.end(),
                                    [](const std::shared_ptr<Operation>& other) { return other->is_done(); }),
                     under_way_.end());
    activity_->end(operation.name(), operation.number(), watchdog.group(), operation.sequence());
}

void Engine::progress()
{
    if (under_way_.empty()) { return; }
    const auto until = std::chrono::steady_clock::now() + progress_time;
    while (advance_all() && !under_way_.empty() && std::chrono::steady_clock::now() < until) {}
}

void Engine::forget(const Operation& operation, std::string text) noexcept
{
    under_way_.erase(std::remove_if(under_way_.begin(), under_way_.end(),
                                    [&](const std::shared_ptr<Operation>& other) { return other.get() == &operation; }),
                     under_way_.end());
    if (forgotten_.empty()) { forgotten_ = std::move(text); }
}

}  // namespace plimsoll::mpi

#endif
