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

/// Shard files that are open for reading, few at a time for the sake of the descriptor limit. Not thread-safe.
class ShardFiles
{
  public:
    /// `shards` outlives this.
    explicit ShardFiles(const std::vector<ShardContent>& shards) : shards_(shards) {}
    std::shared_ptr<const DirectFile> at(std::size_t shard);

  private:
    const std::vector<ShardContent>& shards_;
    std::map<std::size_t, std::shared_ptr<const DirectFile>> files_;
};

/// Bytes of block number `block` of a box.
std::int64_t block_size(const IndexRow& row, std::int64_t block);

/// Reads a block and checks it. `buffer` is large enough. Safe from several threads.
/// @throws FormatError "file: dataset: block 2 of 5 is damaged (crc ...)"
void read_block(const DirectFile& file, const ShardContent& shard, const IndexRow& row, std::int64_t block, char* buffer);

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
    explicit BlockSource(const std::vector<ShardContent>& shards) : shards_(shards), files_(shards) {}
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
    void read(Slot& slot, const BlockPlace& place, const DirectFile& file);

    const std::vector<ShardContent>& shards_;
    ShardFiles files_;
    Slot current_, ahead_;
    std::future<void> pending_; ///< fills ahead_
};

}  // namespace plimsoll::checkpoint
