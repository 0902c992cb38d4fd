#include "comm/thread_world.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.hpp"

namespace plimsoll::threads
{

namespace
{

constexpr int num_yields = 12;
constexpr auto longest_sleep = std::chrono::milliseconds(20);
constexpr auto progress_time = std::chrono::microseconds(50);

void pause_cpu()
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

std::string name_of(const Operation& operation)
{
    return fmt::format("{}{} of '{}' #{}", operation.name,
                       operation.number >= 0 ? fmt::format(" {}", operation.number) : "", operation.watchdog->group(),
                       operation.sequence);
}

}  // namespace

void Doorbell::ring()
{
    rings_.fetch_add(1, std::memory_order_seq_cst);
    if (sleeping_.load(std::memory_order_seq_cst))
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        wake_.notify_one();
    }
}

void Doorbell::sleep(std::uint32_t seen)
{
    std::unique_lock<std::mutex> lock(mutex_);
    sleeping_.store(true, std::memory_order_seq_cst);
    wake_.wait_for(lock, longest_sleep, [&] { return rings() != seen; });
    sleeping_.store(false, std::memory_order_relaxed);
}

bool SharedBuffer::pin()
{
    readers_.fetch_add(1, std::memory_order_seq_cst);
    if (!withdrawn_.load(std::memory_order_seq_cst)) { return true; }
    unpin();
    return false;
}

void SharedBuffer::withdraw() noexcept
{
    withdrawn_.store(true, std::memory_order_seq_cst);
    while (readers_.load(std::memory_order_seq_cst) != 0) { ::sched_yield(); }
}

void Operation::finish() { rank->wait(*this); }

void Operation::abandon() noexcept
{
    if (std::uncaught_exceptions() > 0 || rank->world().has_failed)
    {
        withdraw();
        return;
    }
    // The buffers are about to go while others need them: complete it, then say so where an exception can be thrown.
    try
    {
        rank->forgot(*this);
        rank->wait(*this);
    }
    catch (...)
    {
        withdraw();
    }
}

Rank::Rank(std::shared_ptr<World> world, std::int64_t number)
    : world_(std::move(world)), number_(number), activity_(world_->board->activity(number)),
      num_spins_(world_->size <= static_cast<std::int64_t>(std::thread::hardware_concurrency()) ? 200 : 0)
{
}

void Rank::enter()
{
    world_->throw_if_failed();
    check_forgotten();
}

void Rank::issue(const std::shared_ptr<Operation>& operation)
{
    operation->rank = shared_from_this();
    activity_->begin(operation->name, operation->number, operation->watchdog->group(), operation->sequence);
    under_way_.push_back(operation);
    try
    {
        advance_all(operation.get());
    }
    catch (...)
    {
        withdraw_all();
        throw;
    }
}

void Rank::wait(Operation& operation)
{
    try
    {
        activity_->begin(operation.name, operation.number, operation.watchdog->group(), operation.sequence);
        operation.watchdog->start(operation.name, operation.number, operation.sequence);
        for (int idle = 0; !operation.is_done;)
        {
            const std::uint32_t seen = world_->bells[static_cast<std::size_t>(number_)]->rings();
            world_->throw_if_failed();
            if (advance_all(&operation))
            {
                idle = 0;
                continue;
            }
            operation.watchdog->check();
            rest(idle++, seen);
        }
        activity_->end(operation.name, operation.number, operation.watchdog->group(), operation.sequence);
    }
    catch (...)
    {
        withdraw_all();
        throw;
    }
}

void Rank::progress()
{
    if (under_way_.empty()) { return; }
    world_->throw_if_failed();
    const auto end = std::chrono::steady_clock::now() + progress_time;
    while (advance_all(nullptr) && std::chrono::steady_clock::now() < end) {}
}

bool Rank::advance_all(Operation* first)
{
    // Complete operations leave the list; their Work still holds them.
    bool moved = first != nullptr && !first->is_done && first->advance();
    bool any_done = first != nullptr && first->is_done;
    for (std::size_t i = 0; i < under_way_.size(); ++i)
    {
        Operation& operation = *under_way_[i];
        if (&operation == first || operation.is_done) { continue; }
        moved = operation.advance() || moved;
        if (operation.is_done)
        {
            any_done = true;
            activity_->tick();
        }
    }
    if (any_done)
    {
        const auto done = [](const std::shared_ptr<Operation>& operation) { return operation->is_done; };
        under_way_.erase(std::remove_if(under_way_.begin(), under_way_.end(), done), under_way_.end());
    }
    return moved;
}

void Rank::rest(int idle, std::uint32_t seen)
{
    if (idle < num_spins_) { pause_cpu(); }
    else if (idle < num_spins_ + num_yields) { ::sched_yield(); }
    else { world_->bells[static_cast<std::size_t>(number_)]->sleep(seen); }
}

void Rank::withdraw_all() noexcept
{
    for (const std::shared_ptr<Operation>& operation : under_way_) { operation->withdraw(); }
    under_way_.clear();
}

void Rank::forgot(const Operation& operation)
{
    if (forgotten_.empty()) { forgotten_ = name_of(operation); }
}

void Rank::check_forgotten() const
{
    if (!forgotten_.empty())
    {
        throw InternalError(fmt::format("rank {} did not wait for its {}", number_, forgotten_));
    }
}

std::int64_t Rank::next_group_ordinal(std::int64_t parent, const std::vector<std::int64_t>& ranks)
{
    return group_ordinals_[std::make_pair(parent, ranks)]++;
}

World::World(std::int64_t num_ranks, std::shared_ptr<RankBoard> ranks_board, double watchdog_seconds)
    : size(num_ranks), board(std::move(ranks_board)), watchdog_s(watchdog_seconds)
{
    for (std::int64_t i = 0; i < num_ranks; ++i) { bells.push_back(std::make_unique<Doorbell>()); }
}

void World::fail(std::int64_t rank, std::exception_ptr error, std::string context)
{
    {
        const std::lock_guard<std::mutex> lock(failure_mutex);
        if (!failure)
        {
            failed_rank = rank;
            failure = std::move(error);
            failure_context = std::move(context);
            has_failed.store(true);
        }
    }
    ring_all();
}

void World::throw_if_failed() const
{
    if (!has_failed.load(std::memory_order_acquire)) { return; }
    const std::lock_guard<std::mutex> lock(failure_mutex);
    throw CommError(fmt::format("stopped because rank {} failed", failed_rank));
}

void World::ring_all()
{
    for (const std::unique_ptr<Doorbell>& bell : bells) { bell->ring(); }
}

}  // namespace plimsoll::threads
