#pragma once
/// The checkpoint that is resharded: its metadata on every rank, and its blocks in the order of a schedule. For io's own
/// files.

#include <cstdint>
#include <deque>
#include <future>
#include <string>
#include <unordered_map>
#include <vector>

#include "comm/communicator.hpp"
#include "io/checkpoint_blocks.hpp"
#include "io/checkpoint_shard.hpp"
#include "layout/reshard_plan.hpp"

namespace plimsoll::checkpoint
{

/// Metadata of a committed step.
struct StepSource
{
    std::string path;
    Manifest manifest; ///< with the trainer's scalars on rank 0 alone
    std::vector<ShardContent> shards;
};

/// Rank 0 opens and checks, the others receive. Collective. @throws on all ranks alike; FormatError with one rank
StepSource open_source(const std::string& step_dir, Communicator& world);

/// One control thread. Memory: the schedule's cache, `depth` blocks that are read ahead and one spare buffer.
class ScheduledBlocks
{
  public:
    /// `place[k]` is shard and row of the plan's source k. All outlive this.
    ScheduledBlocks(const std::vector<ShardContent>& shards, const std::vector<std::pair<std::size_t, std::size_t>>& places,
                    const ReshardSchedule& schedule, std::size_t depth);
    ~ScheduledBlocks();
    ScheduledBlocks(const ScheduledBlocks&) = delete;
    ScheduledBlocks& operator=(const ScheduledBlocks&) = delete;

    /// Bytes of the block of use number `use`, valid until the next call. Uses come in their order, each once.
    /// @throws FormatError when the block is damaged
    const char* at(std::size_t use);
    std::int64_t bytes_read() const { return bytes_read_; }

  private:
    /// A block that is being read.
    struct Ahead
    {
        std::size_t use = 0;
        AlignedBuffer buffer;
        std::future<void> done;
    };
    std::uint64_t key(std::size_t use) const;
    AlignedBuffer take_buffer(std::int64_t bytes);
    void read_ahead();

    const std::vector<ShardContent>& shards_;
    const std::vector<std::pair<std::size_t, std::size_t>>& places_;
    const ReshardSchedule& schedule_;
    std::size_t depth_;
    ShardFiles files_;
    std::unordered_map<std::uint64_t, AlignedBuffer> held_;
    AlignedBuffer spare_;
    std::size_t next_ = 0;    ///< the first use that read_ahead() has not looked at
    std::deque<Ahead> ahead_; ///< in the order of their uses
    std::int64_t bytes_read_ = 0;
};

}  // namespace plimsoll::checkpoint
