#pragma once
/// Operations of one MPI rank as rounds of messages. Internal to comm_mpi.

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#ifdef PLIMSOLL_WITH_MPI

#include <mpi.h>

#include "comm/operation_queue.hpp"

namespace plimsoll::mpi
{

/// @throws CommError with MPI's own words
void check(int code, const char* what);

/// One of a process; all its communicators share it.
class Engine final : public OperationQueue
{
  public:
    /// `largest_message`: bytes; MPI counts in int, so at most 2^31 - 1. `given_up` is shared by the ranks of the node.
    Engine(std::int64_t rank, std::shared_ptr<RankBoard> board, std::atomic<std::uint64_t>& given_up,
           std::int64_t local_ranks, double watchdog_seconds, std::int64_t largest_message);

    const std::shared_ptr<RankBoard>& board() const { return board_; }
    double watchdog_seconds() const { return watchdog_seconds_; }
    std::int64_t largest_message() const { return largest_message_; }

    /// A send was given up that nobody received. Its buffer goes, so no rank of the node may receive it from here on: their
    /// next call or turn of a wait throws.
    void give_up() { given_up_.store(1, std::memory_order_release); }

  private:
    void look() override;
    void rest(int idle) override;

    std::shared_ptr<RankBoard> board_;
    std::atomic<std::uint64_t>& given_up_;
    double watchdog_seconds_;
    std::int64_t largest_message_;
    int num_spins_;
    std::int64_t idle_since_ns_ = 0;
    PoliteYield polite_;
};

/// An operation under way: rounds of sends and receives with work in between.
class MessageOperation : public Operation
{
  public:
    /// `peer`: -1 unless it is a message; `which`: its number in the group
    MessageOperation(Engine& engine, std::shared_ptr<Watchdog> watches, const char* what, std::int64_t peer,
                     std::int64_t which);

    /// Tests the messages of the round and goes on when they are there.
    bool advance() override;
    /// What a member has begun to receive or to send must go through: MPI moves it from one memory to the other by itself.
    /// The rest is cancelled, or given up after half a second.
    void withdraw() noexcept override;

  protected:
    /// Posts the messages of the next round, if any; false when the operation is complete. Called with no message under way.
    virtual bool next_round() = 0;

    /// Any number of bytes, in messages of at most largest_message(). In the order of calls per pair and tag.
    void post_send(MPI_Comm comm, const void* data, std::int64_t bytes, int peer, int tag);
    void post_recv(MPI_Comm comm, void* data, std::int64_t bytes, int peer, int tag);

  private:
    bool finish_round() noexcept;

    Engine& engine_;
    std::vector<MPI_Request> requests_;
    std::vector<bool> is_receive_;  ///< of each request
};

}  // namespace plimsoll::mpi

#endif
