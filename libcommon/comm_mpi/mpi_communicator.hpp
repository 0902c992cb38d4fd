#pragma once
/// Communicator over MPI. Internal to comm_mpi.
///
/// Every operation is made of non-blocking messages (message_operations.hpp) or, a large sum inside a node, of copies through shared
/// memory (shared_operations.hpp), so that one order of summation holds in all back ends and any number of operations of any
/// groups may be under way.

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
