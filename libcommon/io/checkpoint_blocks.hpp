#pragma once
/// Reads blocks of boxes, each checked against its CRC, the next one already on its way. For io's own files.

#include <cstdint>
#include <future>
#include <map>
#include <memory>
#include <vector>

#include "io/checkpoint_shard.hpp"

namespace plimsoll::checkpoint
{

/// A block of 16 MiB of the box in row `row` of shard `shard`.
struct BlockPlace
{
    std::size_t shard = 0;
    std::size_t row = 0;
    std::int64_t block = 0;
    friend bool operator==(const BlockPlace& a, const BlockPlace& b)
    {
        return a.shard == b.shard && a.row == b.row && a.block == b.block;
    }
};

/// Not thread-safe. Memory: two blocks.
class BlockSource
{
  public:
    /// `shards` outlives the source.
    explicit BlockSource(const std::vector<ShardContent>& shards) : shards_(shards) {}
    ~BlockSource();
    BlockSource(const BlockSource&) = delete;
    BlockSource& operator=(const BlockSource&) = delete;

    std::int64_t block_size(const BlockPlace& place) const;
    /// The block's bytes, valid until the next load(). `next` (may be null) is read meanwhile.
    /// @throws FormatError "file: dataset: block 2 of 5: crc differs ..."
    const char* load(const BlockPlace& place, const BlockPlace* next);

  private:
    struct Slot
    {
        BlockPlace place;
        bool used = false;
        AlignedBuffer buffer;
    };
    void read(Slot& slot, const BlockPlace& place);
    const DirectFile& file(std::size_t shard);

    const std::vector<ShardContent>& shards_;
    std::map<std::size_t, std::unique_ptr<DirectFile>> files_; ///< open ones; few, for the sake of the descriptor limit
    Slot current_, ahead_;
    std::future<void> pending_; ///< fills ahead_
};

}  // namespace plimsoll::checkpoint
