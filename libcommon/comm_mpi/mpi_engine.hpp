#pragma once
/// Operations of one MPI rank as rounds of messages, and the engine that moves them forward. Internal to comm_mpi.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#ifdef PLIMSOLL_WITH_MPI

#include <mpi.h>

#include "comm/communicator.hpp"
#include "comm/rank_activity.hpp"
#include "comm/watchdog.hpp"

namespace plimsoll::mpi
{

/// @throws CommError with MPI's own words
void check(int code, const char* what);

class Engine;

/// An operation under way: rounds of sends and receives with work in between. Its thread only.
class Operation : public Work::Operation
{
  public:
    Operation(Engine& engine, std::shared_ptr<Watchdog> watchdog, const char* name, std::int64_t number, std::int64_t sequence)
        : engine_(engine), watchdog_(std::move(watchdog)), name_(name), number_(number), sequence_(sequence)
    {
    }

    void finish() override;
    void abandon() noexcept override;

    /// Tests the messages of the round and goes on when they are there. Returns whether anything moved.
    bool advance();
    bool is_done() const { return is_done_; }
    Watchdog& watchdog() { return *watchdog_; }
    const char* name() const { return name_; }
    std::int64_t number() const { return number_; }
    std::int64_t sequence() const { return sequence_; }

  protected:
    /// Posts the messages of the next round, if any; false when the operation is complete. Called with no message under way.
    virtual bool next_round() = 0;

    /// Any number of bytes, in messages of at most a gigabyte. In the order of calls per pair and tag.
    void post_send(MPI_Comm comm, const void* data, std::int64_t bytes, int peer, int tag);
    void post_recv(MPI_Comm comm, void* data, std::int64_t bytes, int peer, int tag);

  private:
    Engine& engine_;
    std::shared_ptr<Watchdog> watchdog_;
    const char* name_;
    std::int64_t number_;
    std::int64_t sequence_;
    std::vector<MPI_Request> requests_;
    bool is_done_ = false;
};

/// One of a process; all its communicators share it.
class Engine
{
  public:
    Engine(std::shared_ptr<RankBoard> board, std::unique_ptr<RankActivity> activity, double watchdog_seconds)
        : board_(std::move(board)), activity_(std::move(activity)), watchdog_seconds_(watchdog_seconds)
    {
    }

    /// Before every call: @throws InternalError when an operation was not waited for
    void enter() const;
    void issue(const std::shared_ptr<Operation>& operation);
    void wait(Operation& operation);
    void progress();
    /// Takes it off the list. `text` is not empty when nobody waited for it: enter() throws it.
    void forget(const Operation& operation, std::string text) noexcept;

    const std::shared_ptr<RankBoard>& board() const { return board_; }
    RankActivity& activity() { return *activity_; }
    double watchdog_seconds() const { return watchdog_seconds_; }

  private:
    bool advance_all();

    std::shared_ptr<RankBoard> board_;
    std::unique_ptr<RankActivity> activity_;
    double watchdog_seconds_;
    std::vector<std::shared_ptr<Operation>> under_way_;
    std::string forgotten_;
};

}  // namespace plimsoll::mpi

#endif
