#pragma once
/// Communicator over MPI messages. Internal to comm_mpi.
///
/// Every operation is made of non-blocking messages, so that one order of summation holds in all back ends and any number of
/// operations of any groups may be under way. Large reductions go in chunks: while one chunk is summed, the parts of the next are
/// received. Small ones gather what all ranks bring (Bruck's algorithm, log2 n rounds) and sum it everywhere.

#include <memory>
#include <string>

#ifdef PLIMSOLL_WITH_MPI

#include "comm_mpi/mpi_engine.hpp"

namespace plimsoll::mpi
{

/// `members`: world ranks in group order. The communicator frees `comm`.
std::unique_ptr<Communicator> make_communicator(std::shared_ptr<Engine> engine, MPI_Comm comm, std::string name,
                                                std::vector<std::int64_t> members);

}  // namespace plimsoll::mpi

#endif
