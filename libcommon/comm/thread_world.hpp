#pragma once
/// What the threads of run_ranks() share. Internal to comm.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "comm/operation_queue.hpp"
#include "comm/rank_activity.hpp"

namespace plimsoll::threads
{

/// Wakes one rank. Any thread rings.
class Doorbell
{
  public:
    std::uint32_t rings() const { return rings_.load(std::memory_order_seq_cst); }
    void ring();
    /// Returns when it rang since `seen` was read, or after a few ms.
    void sleep(std::uint32_t seen);

  private:
    std::atomic<std::uint32_t> rings_{0};
    std::atomic<bool> sleeping_{false};
    std::mutex mutex_;
    std::condition_variable wake_;
};

/// Gives the k-th call of each participant the same object, which is forgotten here when all have it. Thread-safe.
template<class Key, class Value>
class Meeting
{
  public:
    template<class Make>
    std::shared_ptr<Value> join(const Key& key, std::int64_t participants, Make&& make)
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        auto& entry = entries_[key];
        if (!entry.first) { entry.first = make(); }
        std::shared_ptr<Value> value = entry.first;
        if (++entry.second == participants) { entries_.erase(key); }
        return value;
    }

  private:
    std::mutex mutex_;
    std::map<Key, std::pair<std::shared_ptr<Value>, std::int64_t>> entries_;
};

/// A buffer that others read: its owner takes it back before it may be destroyed.
class SharedBuffer
{
  public:
    /// While it holds, the owner waits in withdraw(). False: taken back.
    bool pin();
    void unpin() { readers_.fetch_sub(1, std::memory_order_release); }
    void withdraw() noexcept;

  private:
    std::atomic<bool> withdrawn_{false};
    std::atomic<int> readers_{0};
};

struct World;
struct Group;

/// One rank of the world. Its thread only.
class ThreadRank final : public OperationQueue
{
  public:
    ThreadRank(std::shared_ptr<World> world, std::int64_t number);

    World& world() { return *world_; }
    /// How often this rank asked for such a subgroup of group `parent` before.
    std::int64_t next_group_ordinal(std::int64_t parent, const std::vector<std::int64_t>& ranks);

  protected:
    bool others_failed() const override;
    void look() override;
    void rest(int idle) override;

  private:
    std::shared_ptr<World> world_;
    std::uint32_t seen_rings_ = 0;
    std::map<std::pair<std::int64_t, std::vector<std::int64_t>>, std::int64_t> group_ordinals_;
    int num_spins_;
    PoliteYield polite_;
};

/// (parent group, its members in world ranks, how often this was asked for).
using GroupKey = std::pair<std::pair<std::int64_t, std::int64_t>, std::vector<std::int64_t>>;

struct World
{
    World(std::int64_t num_ranks, std::shared_ptr<RankBoard> ranks_board, double watchdog_seconds);

    /// Keeps the first failure and wakes everybody.
    void fail(std::int64_t rank, std::exception_ptr error, std::string context);
    /// @throws CommError unless no rank failed
    void throw_if_failed() const;
    void ring_all();

    std::int64_t size;
    std::shared_ptr<RankBoard> board;
    double watchdog_s;
    std::vector<std::unique_ptr<Doorbell>> bells;
    Meeting<GroupKey, Group> groups;
    std::atomic<std::int64_t> next_group_id{1};

    std::atomic<bool> has_failed{false};
    mutable std::mutex failure_mutex;
    std::int64_t failed_rank = -1;
    std::exception_ptr failure;
    std::string failure_context;
};

/// The world communicator of a rank.
std::unique_ptr<Communicator> make_world_communicator(const std::shared_ptr<ThreadRank>& rank, std::shared_ptr<Group> group);
std::shared_ptr<Group> make_world_group(std::int64_t size);

}  // namespace plimsoll::threads
