#include "comm/launch.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "base/error.hpp"

namespace plimsoll
{
namespace
{

/// A whole number of the environment; `absent` when there is none.
std::int64_t number(const Environment& environment, const char* name, std::int64_t absent)
{
    const auto found = environment.find(name);
    if (found == environment.end() || found->second.empty()) { return absent; }
    char* end = nullptr;
    const long long value = std::strtoll(found->second.c_str(), &end, 10);
    return *end == '\0' ? value : absent;
}

/// SLURM_STEP_TASKS_PER_NODE: "4", "4(x2)", "4,2(x3)": the largest of them.
std::int64_t tasks_per_node(const Environment& environment)
{
    const auto found = environment.find("SLURM_STEP_TASKS_PER_NODE");
    if (found == environment.end()) { return 1; }
    std::int64_t most = 1;
    const char* at = found->second.c_str();
    while (*at != '\0')
    {
        char* end = nullptr;
        const long long tasks = std::strtoll(at, &end, 10);
        if (end == at) { break; }
        most = std::max<std::int64_t>(most, tasks);
        at = end;
        while (*at != '\0' && *at != ',') { ++at; }
        if (*at == ',') { ++at; }
    }
    return most;
}

}  // namespace

Launch read_launch(const Environment& environment)
{
    Launch launch;
    if (environment.count("OMPI_COMM_WORLD_SIZE") != 0)
    {
        launch.launcher = "open mpi";
        launch.world = number(environment, "OMPI_COMM_WORLD_SIZE", 1);
        launch.rank = number(environment, "OMPI_COMM_WORLD_RANK", 0);
        launch.local_ranks = number(environment, "OMPI_COMM_WORLD_LOCAL_SIZE", 1);
    }
    else if (number(environment, "SLURM_STEP_NUM_TASKS", 0) > 0 && environment.count("SLURM_PROCID") != 0 &&
             environment.count("MPI_LOCALNRANKS") == 0)
    {
        launch.launcher = "srun";
        launch.world = number(environment, "SLURM_STEP_NUM_TASKS", 1);
        launch.rank = number(environment, "SLURM_PROCID", 0);
        launch.local_ranks = tasks_per_node(environment);
    }
    else if (environment.count("PMI_SIZE") != 0)
    {
        launch.launcher = "hydra";
        launch.world = number(environment, "PMI_SIZE", 1);
        launch.rank = number(environment, "PMI_RANK", 0);
        launch.local_ranks = number(environment, "MPI_LOCALNRANKS", 1);
    }
    else if (environment.count("PMIX_RANK") != 0)
    {
        launch.launcher = "pmix";
        launch.rank = number(environment, "PMIX_RANK", 0);
        launch.world = launch.rank + 1;
    }
    launch.local_ranks = std::max<std::int64_t>(1, launch.local_ranks);
    return launch;
}

Launch read_launch()
{
    Environment environment;
    for (const char* name : {"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", "SLURM_STEP_NUM_TASKS",
                             "SLURM_PROCID", "SLURM_STEP_TASKS_PER_NODE", "PMI_SIZE", "PMI_RANK", "MPI_LOCALNRANKS", "PMIX_RANK"})
    {
        if (const char* value = std::getenv(name)) { environment[name] = value; }
    }
    return read_launch(environment);
}

void check_launch(const Launch& launch, std::int64_t mpi_world)
{
    if (mpi_world > 1 || launch.world <= 1) { return; }
    const std::string hint = launch.launcher == "srun"       ? "start it with srun --mpi=pmi2 (srun --mpi=list shows what there is)"
                             : launch.launcher == "open mpi" ? "this build uses another MPI than the launcher: use its own mpiexec"
                                                             : "use the mpiexec of the MPI that plimsoll was built with";
    throw UsageError(fmt::format("{} started {} tasks, but MPI sees 1 rank (each would take itself for the whole job). {}",
                                 launch.launcher, launch.world, hint));
}

}  // namespace plimsoll
