#include "comm/thread_world.hpp"

#include <sched.h>

#include <chrono>
#include <thread>

#include "base/error.hpp"

namespace plimsoll::threads
{

namespace
{

constexpr int num_yields = 12;
constexpr auto longest_sleep = std::chrono::milliseconds(20);

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

ThreadRank::ThreadRank(std::shared_ptr<World> world, std::int64_t number)
    : OperationQueue(number, world->board->activity(number)), world_(std::move(world)),
      num_spins_(world_->size <= static_cast<std::int64_t>(std::thread::hardware_concurrency()) ? 200 : 0)
{
}

bool ThreadRank::others_failed() const { return world_->has_failed.load(std::memory_order_acquire); }

void ThreadRank::look()
{
    seen_rings_ = world_->bells[static_cast<std::size_t>(rank())]->rings();
    world_->throw_if_failed();
}

void ThreadRank::rest(int idle)
{
    if (idle < num_spins_) { pause_cpu(); }
    else if (idle >= num_spins_ + num_yields || !polite_.yield())
    {
        world_->bells[static_cast<std::size_t>(rank())]->sleep(seen_rings_);
    }
}

std::int64_t ThreadRank::next_group_ordinal(std::int64_t parent, const std::vector<std::int64_t>& ranks)
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
    throw CutOffError(fmt::format("stopped because rank {} failed", failed_rank));
}

void World::ring_all()
{
    for (const std::unique_ptr<Doorbell>& bell : bells) { bell->ring(); }
}

}  // namespace plimsoll::threads
