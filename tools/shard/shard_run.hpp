#pragma once
/// The runs of plimsoll-shard that write shards: alone, as one task of several, over MPI ranks, and the merge.

#include <string>
#include <vector>

#include "base/run_tool.hpp"
#include "io/corpus.hpp"
#include "layout/run_config.hpp"

namespace plimsoll
{

struct ShardRun
{
    CorpusOptions corpus;  ///< threads 0: the cores that this process may use, shared by the ranks of its node
    std::string out;       ///< as the user wrote it
    bool json = false;
};

/// Under a launcher with several ranks each takes a part and rank 0 merges them.
ExitCode run_shard(const ShardRun& run);

struct MergeRun
{
    std::vector<std::string> parts;  ///< directories and patterns
    std::string out;
    bool force = false;
    bool json = false;
};

ExitCode run_merge(const MergeRun& run);

}  // namespace plimsoll
