#pragma once
/// What the launcher told this process, and whether that fits the MPI world that it sees. Pure functions over an environment.

#include <cstdint>
#include <map>
#include <string>

namespace plimsoll
{

struct Launch
{
    std::string launcher;          ///< "srun", "hydra" (mpiexec of MPICH), "open mpi", "pmix"; empty: started by hand
    std::int64_t world = 1;        ///< processes of the step
    std::int64_t rank = 0;
    std::int64_t local_ranks = 1;  ///< processes of the step on this node
    /// Whether another process of the step prints what all would print alike.
    bool is_first() const { return rank == 0; }
};

using Environment = std::map<std::string, std::string>;

Launch read_launch(const Environment& environment);
/// Of this process.
Launch read_launch();

/// @throws UsageError when the launcher started several processes and MPI sees one: each would take itself for the whole job
/// and write the same run directory ("srun started 4 tasks, but MPI sees 1 rank ...")
void check_launch(const Launch& launch, std::int64_t mpi_world);

}  // namespace plimsoll
