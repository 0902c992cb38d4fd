#pragma once
/// plimsoll-bench allreduce.

#include <string>

#include "base/run_tool.hpp"
#include "comm/all_reduce_bench.hpp"

namespace plimsoll
{

struct AllReduceOptions
{
    SizeRange sizes;
    std::int64_t ranks = 0;  ///< > 0: so many threads of this process; 0: the ranks of the launcher
    std::int64_t iterations = 100;
    std::int64_t warmup = 5;
    double min_seconds = 0.2;
    std::string dtype = "fp32";  ///< fp32 | fp64
    std::string peer = "none";   ///< none | mpi
    bool check = true;
    bool json = false;
};

Command all_reduce_command(AllReduceOptions& options);

/// Every rank of `world` calls it; rank 0 prints. `back_end`: "threads" or "mpi". The same exit code on all ranks: failed when an
/// element was wrong. @throws UsageError with the sizes that do not fit
ExitCode run_all_reduce(const AllReduceOptions& options, Communicator& world, const std::string& back_end);

}  // namespace plimsoll
