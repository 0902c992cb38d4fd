#pragma once
/// What the threads of run_ranks() share, and the engine with which each moves its operations forward. Internal to comm.

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

#include "comm/communicator.hpp"
#include "comm/rank_activity.hpp"
#include "comm/watchdog.hpp"

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

/// An operation as one rank sees it.
class Operation : public Work::Operation
{
  public:
    /// Does a bounded amount of work if others are far enough. Returns whether anything moved.
    virtual bool advance() = 0;
    /// Takes the buffers back; nobody reads or writes them afterwards.
    virtual void withdraw() noexcept = 0;

    void finish() override;
    void abandon() noexcept override;

    bool is_done = false;
    const char* name = "";
    std::int64_t number = -1;  ///< the peer of a message
    std::int64_t sequence = 0;
    std::shared_ptr<Watchdog> watchdog;
    std::shared_ptr<class Rank> rank;
};

/// The engine of one rank; all its communicators share it. Its thread only.
class Rank : public std::enable_shared_from_this<Rank>
{
  public:
    Rank(std::shared_ptr<World> world, std::int64_t number);

    /// Before every call: throws when another rank failed, or this one forgot to wait.
    void enter();
    void issue(const std::shared_ptr<Operation>& operation);
    void wait(Operation& operation);
    void progress();
    void withdraw_all() noexcept;
    void forgot(const Operation& operation);
    /// @throws InternalError when an operation was not waited for
    void check_forgotten() const;

    std::int64_t number() const { return number_; }
    World& world() { return *world_; }
    const std::shared_ptr<World>& shared_world() const { return world_; }
    RankActivity& activity() { return *activity_; }
    std::int64_t next_group_ordinal(std::int64_t parent, const std::vector<std::int64_t>& ranks);

  private:
    bool advance_all(Operation* first);
    void rest(int idle, std::uint32_t seen);

    std::shared_ptr<World> world_;
    std::int64_t number_;
    std::unique_ptr<RankActivity> activity_;
    std::vector<std::shared_ptr<Operation>> under_way_;
    std::string forgotten_;
    std::map<std::pair<std::int64_t, std::vector<std::int64_t>>, std::int64_t> group_ordinals_;
    int num_spins_;
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
std::unique_ptr<Communicator> make_world_communicator(const std::shared_ptr<Rank>& rank, std::shared_ptr<Group> group);
std::shared_ptr<Group> make_world_group(std::int64_t size);

}  // namespace plimsoll::threads
