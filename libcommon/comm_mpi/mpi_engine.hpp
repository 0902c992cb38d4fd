#pragma once
/// Operations of one MPI rank as rounds of messages. Internal to comm_mpi.

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#ifdef PLIMSOLL_WITH_MPI

#include <mpi.h>

#include "comm/operation_queue.hpp"
#include "comm_mpi/run_with_mpi.hpp"

namespace plimsoll::mpi
{

/// @throws CommError with MPI's own words
void check(int code, const char* what);

/// What the ranks of a node tell each other beside their slots; in memory that they share.
struct NodeFlags
{
    std::atomic<std::uint64_t> has_speaker{0};  ///< one of those that fail says the message
    std::atomic<std::uint64_t> given_up{0};     ///< a send was given up that nobody received
    std::atomic<std::uint64_t> has_warned{0};   ///< of something that is the same for all ranks
};

/// One of a process; all its communicators share it.
class Engine final : public OperationQueue
{
  public:
    /// `flags` outlives it. @pre 1 <= options.largest_message < 2^31: MPI counts in int
    Engine(std::int64_t rank, std::shared_ptr<RankBoard> board, NodeFlags& flags, std::int64_t local_ranks,
           const MpiOptions& options);

    const std::shared_ptr<RankBoard>& board() const { return board_; }
    double watchdog_seconds() const { return options_.watchdog_s; }
    std::int64_t largest_message() const { return options_.largest_message; }
    LargeSums large_sums() const { return options_.large_sums; }
    /// On stderr, by the first rank of the node that wants to warn.
    void warn_once(const std::string& text);

    /// A send was given up that nobody received. Its buffer goes, so no rank of the node may receive it from here on: their
    /// next call or turn of a wait throws.
    void give_up() { flags_.given_up.store(1, std::memory_order_release); }

  private:
    void look() override;
    void rest(int idle) override;

    std::shared_ptr<RankBoard> board_;
    NodeFlags& flags_;
    MpiOptions options_;
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
