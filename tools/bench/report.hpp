#pragma once
/// What the benchmark prints: a table for people, JSON for machines.

#include <string>
#include <vector>

#include "comm/all_reduce_bench.hpp"

namespace plimsoll
{

struct RankPlace
{
    std::string host;
    int core = -1;  ///< the core it runs on, where it may run on one only; -1: several
    int cores = 1;  ///< that it may run on
};

struct BenchSetting
{
    std::string back_end;           ///< "threads" or "mpi"
    std::string launcher;           ///< "hydra", "srun", ...; may be empty
    std::vector<RankPlace> places;  ///< by rank
    std::string dtype;
    std::int64_t warmup = 0;
    std::int64_t iterations = 0;
    double min_seconds = 0;
    bool check = true;
    std::string peer;  ///< "mpich 4.0.2": the library that is measured beside; empty without one
};

/// "# 2 ranks on 1 node (threads): nodeA   fp32 sum, in place, isolated   ..." and the head of the table.
std::string table_head(const BenchSetting& setting);
std::string table_row(const BenchSetting& setting, const AllReduceResult& result);
/// "slowest rank: 1 on nodeA in 54 % of iterations (even)     verdict: ok".
std::string table_end(const BenchSetting& setting, const std::vector<AllReduceResult>& results);

/// "schema_version" 1; times in seconds, rates in bytes per second.
std::string bench_json(const BenchSetting& setting, const std::vector<AllReduceResult>& results);

/// Ranks that share their cores with others of their node, as a warning; empty when there are enough cores.
std::string oversubscription(const BenchSetting& setting);

}  // namespace plimsoll
