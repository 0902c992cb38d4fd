#pragma once
/// The MPI scope of a tool. No MPI type appears here.

#include <cstdint>
#include <functional>
#include <string>

#include "base/error.hpp"
#include "comm/communicator.hpp"

namespace plimsoll
{

/// How a group whose members are all on one node sums large buffers.
enum class LargeSums
{
    shared_memory,  ///< through memory that the members share, where the system allows it
    messages        ///< as between nodes
};

struct MpiOptions
{
    double watchdog_s = 300;                                ///< seconds without progress in a group that end a wait
    std::int64_t largest_message = std::int64_t(1) << 30;   ///< bytes; longer ones go in pieces (MPI counts in int)
    LargeSums large_sums = LargeSums::shared_memory;
};

/// Runs `body` as one rank of the job that the launcher started, and returns the exit code of the job on every rank. Without
/// a launcher it runs alone and MPI is not touched.
///
/// A body that throws: when all ranks have come to their end within four seconds, rank 0 throws what they say as one Error
/// (comm/job_end.hpp) after MPI has ended, and the others return its code. Else this rank prints one line that names rank,
/// step and operation ("plimsoll-train: rank 1 (step 7, after save): disk full") and ends the job through MPI_Abort with its
/// code; of several that fail at the same time on one machine the first prints. A rank that has ended waits for the others
/// and notices when one dies or all hang. With one rank the exception leaves.
/// @throws UsageError when the launcher's number of tasks and the MPI world do not agree, or this build has no MPI
ExitCode run_with_mpi(const std::function<ExitCode(Communicator& world)>& body, const MpiOptions& options = {});

/// MPI_Allreduce, in place and blocking, over all ranks of the job: to compare with. Inside run_with_mpi() with several ranks.
/// @pre f32 or f64
void mpi_library_sum(BufferView data);

/// The MPI library in a few words, "mpich 4.0.2"; empty when this build has none.
std::string mpi_library();

}  // namespace plimsoll
