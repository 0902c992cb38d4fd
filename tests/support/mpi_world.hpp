#pragma once
/// The job that a test of the label `mpi` runs in.

#include "comm/communicator.hpp"

namespace plimsoll::testing
{

/// Of this process; every rank runs every test.
Communicator& mpi_world();

}  // namespace plimsoll::testing
