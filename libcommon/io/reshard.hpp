#pragma once
/// Writes a checkpoint anew as a run of another layout would have saved it, block by block in a bounded memory.
///
///     Reshard reshard(options, world);       // reads metadata, plans, refuses what cannot be done
///     show(reshard.summary());               // a dry run ends here
///     ReshardResult result = reshard.run(progress);
///
/// The files of the result depend on the source and the target layout alone, not on the number of ranks that write them.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "comm/communicator.hpp"
#include "io/checkpoint.hpp"
#include "layout/parallel_layout.hpp"

namespace plimsoll
{

struct ReshardOptions
{
    std::string source;     ///< a step directory
    std::string out;        ///< directory of steps, made when missing
    ParallelLayout layout;  ///< dp, tp, pp and zero count; batches are not looked at
    std::int64_t memory_limit = std::int64_t{512} << 20; ///< bytes per rank
};

struct ReshardSummary
{
    std::string source, source_layout, target_layout;
    std::int64_t step = 0;
    std::int64_t tensors = 0, states = 0;   ///< tensors of the state that has most
    std::int64_t tensor_states = 0;         ///< tensors of all states: digests to compare
    std::int64_t source_files = 0, target_files = 0;
    std::int64_t smallest_file = 0, largest_file = 0; ///< data bytes of target files
    double balance = 1;                     ///< largest / mean
    std::int64_t copies = 0;                ///< pairs of a source and a target box that share elements
    std::int64_t blocks = 0;                ///< written, of at most block_bytes
    std::int64_t block_bytes = 0;
    std::int64_t data_bytes = 0;            ///< written
    std::int64_t read_bytes = 0;            ///< by all ranks
    std::int64_t rank_bytes = 0;            ///< written by the rank that writes most
    std::int64_t memory = 0;                ///< bytes of the rank that needs most, as planned
    std::int64_t memory_limit = 0;
    std::int64_t disk_bytes = 0;            ///< that OUT must have free, margin included
    double amplification() const { return data_bytes > 0 ? static_cast<double>(read_bytes) / static_cast<double>(data_bytes) : 1; }
};

/// Of this rank.
struct ReshardProgress
{
    std::int64_t written = 0, to_write = 0, read = 0; ///< bytes
};

struct ReshardResult
{
    SavedStep saved;
    std::int64_t digests = 0;    ///< tensors x states whose digest was found equal
    std::int64_t read_bytes = 0; ///< by all ranks
};

/// One control thread of each rank; all functions but summary() are collective and succeed or throw on all ranks alike.
class Reshard
{
  public:
    /// Rank 0 reads the source's metadata. `world` outlives this. Coverage of source and target is proven here.
    /// @throws UsageError: the layout does not fit the model, the step is in `out` already, memory or disk do not suffice;
    /// FormatError: the source is no sound checkpoint of its model. With several ranks IoError with their exit code.
    Reshard(ReshardOptions options, Communicator& world);
    ~Reshard();
    Reshard(const Reshard&) = delete;
    Reshard& operator=(const Reshard&) = delete;

    const ReshardSummary& summary() const;

    /// Copies all states, compares every digest with the source's, commits. An Error that `progress` throws stops all ranks.
    /// @throws with exit code 93 when a block of the source is damaged or a digest differs, naming it; nothing is committed
    ReshardResult run(const std::function<void(const ReshardProgress&)>& progress = {});

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace plimsoll
