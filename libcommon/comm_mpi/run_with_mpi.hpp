#pragma once
/// The MPI scope of a tool. No MPI type appears here.

#include <functional>

#include "base/error.hpp"
#include "comm/communicator.hpp"

namespace plimsoll
{

struct MpiOptions
{
    double watchdog_s = 300; ///< seconds without progress in a group that end a wait
};

/// Runs `body` as one rank of the job that the launcher started, and returns the exit code of the job on every rank. Without
/// a launcher it runs alone and MPI is not touched.
///
/// A body that throws: when all ranks have come to their end within two seconds, rank 0 prints what they say (once where they
/// say the same) and all return one code. Else this rank prints one line that names rank, step and operation and ends the job
/// through MPI_Abort with its code. With one rank the exception leaves.
/// @throws UsageError when the launcher's number of tasks and the MPI world do not agree, or this build has no MPI
ExitCode run_with_mpi(const std::function<ExitCode(Communicator& world)>& body, const MpiOptions& options = {});

}  // namespace plimsoll
