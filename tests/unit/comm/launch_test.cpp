#include "comm/launch.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

using namespace plimsoll;

namespace
{

struct Row
{
    const char* what;
    Environment environment;
    const char* launcher;
    std::int64_t world, rank, local_ranks;
};

}  // namespace

TEST(Launch, ReadsWhatEachLauncherSays)
{
    const std::vector<Row> rows = {
        {"by hand", {}, "", 1, 0, 1},
        {"inside an allocation, without srun", {{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "8"}}, "", 1, 0, 1},
        {"mpiexec", {{"PMI_SIZE", "4"}, {"PMI_RANK", "3"}, {"MPI_LOCALNRANKS", "2"}}, "hydra", 4, 3, 2},
        {"mpiexec in an allocation", {{"PMI_SIZE", "4"}, {"PMI_RANK", "1"}, {"MPI_LOCALNRANKS", "4"},
                                      {"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "0"}}, "hydra", 4, 1, 4},
        {"srun", {{"SLURM_STEP_NUM_TASKS", "6"}, {"SLURM_PROCID", "5"}, {"SLURM_STEP_TASKS_PER_NODE", "2(x3)"}}, "srun", 6, 5, 2},
        {"srun, uneven nodes", {{"SLURM_STEP_NUM_TASKS", "9"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_TASKS_PER_NODE", "1,4(x2)"}},
         "srun", 9, 0, 4},
        {"srun with pmi2", {{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"}, {"PMI_SIZE", "2"}, {"PMI_RANK", "1"}}, "srun", 2, 1, 1},
        {"open mpi", {{"OMPI_COMM_WORLD_SIZE", "3"}, {"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "3"}}, "open mpi",
         3, 2, 3},
        {"pmix alone", {{"PMIX_RANK", "1"}}, "pmix", 2, 1, 1},
        {"not a number", {{"PMI_SIZE", "many"}, {"PMI_RANK", ""}}, "hydra", 1, 0, 1},
    };
    for (const Row& row : rows)
    {
        SCOPED_TRACE(row.what);
        const Launch launch = read_launch(row.environment);
        EXPECT_EQ(launch.launcher, row.launcher);
        EXPECT_EQ(launch.world, row.world);
        EXPECT_EQ(launch.rank, row.rank);
        EXPECT_EQ(launch.local_ranks, row.local_ranks);
        EXPECT_EQ(launch.is_first(), row.rank == 0);
    }
}

TEST(Launch, RefusesTasksThatDoNotSeeEachOther)
{
    Launch launch;
    launch.launcher = "srun";
    launch.world = 4;
    try
    {
        check_launch(launch, 1);
        FAIL() << "four runs in one directory";
    }
    catch (const UsageError& error)
    {
        EXPECT_STREQ(error.what(), "srun started 4 tasks, but MPI sees 1 rank (each would take itself for the whole job). start it "
                                   "with srun --mpi=pmi2 (srun --mpi=list shows what there is)");
    }
    EXPECT_NO_THROW(check_launch(launch, 4));
    EXPECT_NO_THROW(check_launch(Launch(), 1));
}
