#pragma once
/// Operations under way of one rank, moved forward together while it waits for any of them. Internal to the back ends.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/rank_activity.hpp"
#include "comm/watchdog.hpp"

namespace plimsoll
{

class OperationQueue;

/// An operation as one rank sees it: a state machine that advance() moves.
class Operation : public Work::Operation
{
  public:
    /// Does a bounded amount of work if others are far enough. Returns whether anything moved.
    virtual bool advance() = 0;
    /// Makes its buffers safe to destroy although it is not complete.
    virtual void withdraw() noexcept = 0;

    void finish() override;
    void abandon() noexcept override;

    /// "recv from 1 of 'pp' #3"
    std::string text() const;

    bool is_done = false;
    const char* name = "";
    std::int64_t number = -1;  ///< the peer of a message
    std::int64_t sequence = 0;
    std::shared_ptr<Watchdog> watchdog;
    std::shared_ptr<OperationQueue> queue;
};

/// One for each rank; all its communicators share it. Its thread only.
class OperationQueue : public std::enable_shared_from_this<OperationQueue>
{
  public:
    OperationQueue(std::int64_t rank, std::shared_ptr<RankActivity> activity);
    virtual ~OperationQueue() = default;

    /// Before every call. @throws CommError when another rank failed, InternalError when this one forgot to wait
    void enter();
    /// Its name, number, sequence and watchdog are set.
    void issue(const std::shared_ptr<Operation>& operation);
    void wait(Operation& operation);
    void progress();
    /// Returns how many were under way.
    std::int64_t withdraw_all() noexcept;
    void forgot(const Operation& operation);
    /// @throws InternalError when an operation was not waited for
    void check_forgotten() const;

    std::int64_t rank() const { return rank_; }
    RankActivity& activity() { return *activity_; }
    bool is_failing() const { return has_thrown_ || others_failed(); }

  protected:
    /// Whether the job is ending because of another rank.
    virtual bool others_failed() const { return false; }
    /// First thing in each turn of a wait, and before each call. @throws CommError when another rank failed
    virtual void look() {}
    /// Nothing moved for the `idle`-th time in a row.
    virtual void rest(int idle) = 0;

  private:
    bool advance_all(Operation* first);
    void turn_until_done(Operation& operation);

    std::int64_t rank_;
    std::shared_ptr<RankActivity> activity_;
    std::vector<std::shared_ptr<Operation>> under_way_;
    std::string forgotten_;
    bool has_thrown_ = false;
};

/// For loops that poll: says the processor that it does.
void pause_cpu();

/// Who polls by giving its core to others gets it back only after their time slices; a sleeper is woken at once. So waits
/// yield while that costs little, and sleep where others compute. Of one thread.
class PoliteYield
{
  public:
    /// Yields. False, without yielding, for a while after a yield took long: sleep instead.
    bool yield();

  private:
    std::int64_t contended_until_ns_ = 0;
};

/// Of a clock that only moves forward.
std::int64_t steady_now_ns();
inline double steady_now_seconds() { return static_cast<double>(steady_now_ns()) * 1e-9; }

}  // namespace plimsoll
