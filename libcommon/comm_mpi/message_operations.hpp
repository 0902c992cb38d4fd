#pragma once
/// Collectives and messages of a group made of MPI messages (docs/adr/0021). Internal to comm_mpi.
///
/// Large reductions go in chunks: while one chunk is summed, the parts of the next are received. Small ones gather what all
/// ranks bring (Bruck's algorithm, log2 n rounds) and sum it everywhere. `which`: the collective's number in its group.

#include <cstdint>
#include <memory>
#include <vector>

#ifdef PLIMSOLL_WITH_MPI

#include "comm_mpi/mpi_engine.hpp"
#include "layout/collective_cost.hpp"

namespace plimsoll::mpi
{

/// One buffer of collective_scratch_bytes(): the reductions of a group have it in turn, in the order of issue, which is the same
/// on all members.
class Scratch
{
  public:
    explicit Scratch(std::int64_t group_size) : buffer_bytes_(collective_scratch_bytes(group_size)) {}
    std::int64_t next_turn() { return turns_++; }
    /// nullptr: others are before.
    char* take(std::int64_t turn)
    {
        if (turn != served_) { return nullptr; }
        if (!buffer_) { buffer_ = std::make_unique<char[]>(static_cast<std::size_t>(buffer_bytes_)); }
        return buffer_.get();
    }
    void give_back() { ++served_; }
    std::int64_t bytes() const { return buffer_ ? buffer_bytes_ : 0; }

  private:
    std::int64_t buffer_bytes_;
    std::unique_ptr<char[]> buffer_;
    std::int64_t turns_ = 0;
    std::int64_t served_ = 0;
};

/// Where an operation of a group runs.
struct Place
{
    std::shared_ptr<Engine> engine;
    std::shared_ptr<Watchdog> watchdog;
    std::shared_ptr<Scratch> scratch;
    MPI_Comm comm = MPI_COMM_NULL;
    int rank = 0;
    int size = 1;
};

using OperationPtr = std::shared_ptr<Operation>;

OperationPtr message_barrier(const Place& place, std::int64_t which);
OperationPtr message_all_reduce(const Place& place, std::int64_t which, const BufferView& data, ReduceOp op);
OperationPtr message_reduce_scatter(const Place& place, std::int64_t which, const BufferView& input, const BufferView& output);
OperationPtr message_all_gather(const Place& place, std::int64_t which, const BufferView& input, const BufferView& output);
OperationPtr message_broadcast(const Place& place, std::int64_t which, const BufferView& data, int root);
/// `which`: of this pair's messages in this direction
OperationPtr message_send(const Place& place, const BufferView& data, std::int64_t peer, std::int64_t which);
OperationPtr message_recv(const Place& place, const BufferView& data, std::int64_t peer, std::int64_t which);
/// Holds the members of a group to be back until all are there: MPI's own call blocks and spins. `ranks`: in `place.comm`, `own` of
/// them this one
OperationPtr message_meeting(const Place& place, std::vector<int> ranks, int own);

}  // namespace plimsoll::mpi

#endif
