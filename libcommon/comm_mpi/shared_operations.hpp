#pragma once
/// Sums over a group on one node through its SharedWindow. Internal to comm_mpi.
///
/// They move piece by piece: a member fills its slot with what the others need of it, sums its part from theirs, and takes the sums
/// of the others. Nobody reads another's buffer, so a member that has its result is done whatever the others do, and one that
/// fails leaves nothing behind that could be read too late.

#include <cstdint>
#include <memory>

#include "comm/operation_queue.hpp"
#include "comm_mpi/shared_window.hpp"

namespace plimsoll
{

std::shared_ptr<Operation> shared_all_reduce(std::shared_ptr<SharedWindow> window, const BufferView& data, ReduceOp op);
std::shared_ptr<Operation> shared_reduce_scatter(std::shared_ptr<SharedWindow> window, const BufferView& input,
                                                 const BufferView& output);

}  // namespace plimsoll
