#include "comm/operation_queue.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <exception>

#include "base/error.hpp"

namespace plimsoll
{

namespace
{

constexpr auto progress_time = std::chrono::microseconds(50);
constexpr std::int64_t long_yield_ns = 150000;
constexpr std::int64_t contended_ns = 20000000;

}  // namespace

void pause_cpu()
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

std::int64_t steady_now_ns()
{
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

bool PoliteYield::yield()
{
    const std::int64_t before = steady_now_ns();
    if (before < contended_until_ns_) { return false; }
    ::sched_yield();
    const std::int64_t after = steady_now_ns();
    if (after - before > long_yield_ns) { contended_until_ns_ = after + contended_ns; }
    return true;
}

void Operation::finish() { queue->wait(*this); }

void Operation::abandon() noexcept
{
    if (std::uncaught_exceptions() > 0 || queue->is_failing())
    {
        withdraw();
        return;
    }
    // The buffers are about to go while others need them: complete it, then say so where an exception can be thrown.
    try
    {
        queue->forgot(*this);
        queue->wait(*this);
    }
    catch (...)
    {
        withdraw();
    }
}

std::string Operation::text() const
{
    return fmt::format("{}{} of '{}'{}", name, number >= 0 ? fmt::format(" {}", number) : "", watchdog->group(),
                       sequence > 0 ? fmt::format(" #{}", sequence) : "");
}

OperationQueue::OperationQueue(std::int64_t rank, std::shared_ptr<RankActivity> activity)
    : rank_(rank), activity_(std::move(activity))
{
}

void OperationQueue::enter()
{
    look();
    check_forgotten();
}

void OperationQueue::issue(const std::shared_ptr<Operation>& operation)
{
    operation->queue = shared_from_this();
    activity_->begin(operation->name, operation->number, operation->watchdog->group(), operation->sequence);
    under_way_.push_back(operation);
    try
    {
        advance_all(operation.get());
    }
    catch (...)
    {
        has_thrown_ = true;
        withdraw_all();
        throw;
    }
}

void OperationQueue::wait(Operation& operation)
{
    try
    {
        activity_->begin(operation.name, operation.number, operation.watchdog->group(), operation.sequence);
        operation.watchdog->start(operation.name, operation.number, operation.sequence);
        turn_until_done(operation);
        activity_->end(operation.name, operation.number, operation.watchdog->group(), operation.sequence);
    }
    catch (...)
    {
        has_thrown_ = true;
        withdraw_all();
        throw;
    }
}

void OperationQueue::turn_until_done(Operation& operation)
{
    for (int idle = 0; !operation.is_done;)
    {
        look();
        if (advance_all(&operation))
        {
            idle = 0;
            continue;
        }
        operation.watchdog->check();
        rest(idle++);
    }
}

void OperationQueue::progress()
{
    if (under_way_.empty()) { return; }
    look();
    const auto end = std::chrono::steady_clock::now() + progress_time;
    while (advance_all(nullptr) && std::chrono::steady_clock::now() < end) {}
}

bool OperationQueue::advance_all(Operation* first)
{
    bool moved = first != nullptr && !first->is_done && first->advance();
    bool any_done = first != nullptr && first->is_done;
    for (const std::shared_ptr<Operation>& operation : under_way_)
    {
        if (operation.get() == first || operation->is_done) { continue; }
        moved = operation->advance() || moved;
        if (operation->is_done)
        {
            any_done = true;
            activity_->tick();
        }
    }
    if (any_done)
    {
        // Complete ones leave the list; their Work still holds them.
        const auto done = [](const std::shared_ptr<Operation>& operation) { return operation->is_done; };
        under_way_.erase(std::remove_if(under_way_.begin(), under_way_.end(), done), under_way_.end());
    }
    return moved;
}

std::int64_t OperationQueue::withdraw_all() noexcept
{
    const auto num = static_cast<std::int64_t>(under_way_.size());
    for (const std::shared_ptr<Operation>& operation : under_way_) { operation->withdraw(); }
    under_way_.clear();
    return num;
}

void OperationQueue::forgot(const Operation& operation)
{
    if (forgotten_.empty()) { forgotten_ = operation.text(); }
}

void OperationQueue::check_forgotten() const
{
    VALIDATE(forgotten_.empty(), InternalError, "rank {} did not wait for its {}", rank_, forgotten_);
}

}  // namespace plimsoll
