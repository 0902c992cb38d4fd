#pragma once
/// One shard file of a checkpoint: its owner creates it, any rank writes boxes into it by POSIX, its owner finishes it.
///
///     ShardLayout layout = create_shard(path, plan);           // owner; then sent to the other writers of the file
///     write_box(queue, file, row, box, data);                  // each writer, for the boxes that it holds: sums of blocks
///     FileRecord record = finish_shard(layout, sums_of_all);   // owner, after all have written and synced

#include <cstdint>
#include <string>
#include <vector>

#include "io/checkpoint_format.hpp"
#include "io/direct_file.hpp"

namespace plimsoll::checkpoint
{

struct ShardPlan
{
    std::string uuid;
    std::string writer;
    std::int64_t step = 0;
    std::int64_t shard = 0;
    std::int64_t num_shards = 1;
    std::vector<std::string> names;    ///< of all tensors of the checkpoint, the same in each file
    std::vector<CheckpointBox> boxes;  ///< in this file
    std::vector<std::int64_t> owners;  ///< rank that writes each box; empty: rank 0
    const TrainerState* trainer = nullptr; ///< stored in the first file
};

/// Where the boxes of a plan lie in the file: all that a writer needs.
struct ShardLayout
{
    std::string path;
    std::int64_t index_offset = 0;
    std::int64_t blocks_offset = 0;
    std::int64_t total_blocks = 0;
    std::vector<IndexRow> rows; ///< one per box of the plan, in its order; crc and digest still zero
};

/// What was written of a block of a box.
struct BlockSum
{
    std::uint32_t crc = 0;
    std::uint64_t digest = 0; ///< this block's part of the tensor's digest
};
/// Of a box: the sums of its blocks in their order; empty for a box without elements.
using BoxSums = std::vector<BlockSum>;
std::uint64_t box_digest(const BoxSums& sums);

/// The layout that create_shard() will make, all places in the file still zero.
ShardLayout plan_shard(const ShardPlan& plan);

/// Creates the file with all datasets, tables and attributes (complete = 0) and reserves its space on the disk.
ShardLayout create_shard(const std::string& path, const ShardPlan& plan);

/// Bytes that create_shard() will need, a little too many.
std::int64_t planned_bytes(const ShardPlan& plan);

/// Queues the bytes of a box and sums them up as they pass. `data` may be reused when it returns, `file` outlives the next
/// drain() of the queue.
BoxSums write_box(WriteQueue& queue, DirectFile& file, const IndexRow& row, const CheckpointBox& box, const void* data);

/// The same for one block that lies in `buffer` already.
BlockSum write_block(WriteQueue& queue, DirectFile& file, const IndexRow& row, const CheckpointBox& box, std::int64_t block,
                     AlignedBuffer buffer);

/// Writes /index and /crc, syncs, sets complete = 1, syncs. @pre all boxes are written
FileRecord finish_shard(ShardLayout& layout, const std::vector<BoxSums>& sums);

/// A finished shard file as a reader sees it.
struct ShardContent
{
    std::string path;
    FileRecord record;
    std::vector<std::string> names;
    std::vector<IndexRow> rows;
    std::vector<std::uint32_t> blocks;
    const std::string& name(const IndexRow& row) const { return names[row.name_id]; }
    /// "shard_00000_of_00001.h5: model/x/0", for messages.
    std::string dataset_text(const IndexRow& row) const;
};

/// Opens a file of a checkpoint and checks that it belongs to it: format, version, uuid, step, complete, tables.
/// @throws FormatError naming the file
ShardContent open_shard(const std::string& step_dir, const Manifest& manifest, std::size_t file);

/// Scalars and optimizer groups of the first file.
TrainerState read_trainer(const std::string& step_dir, const Manifest& manifest);

/// CRC32C of all bytes of the file that lie in none of the rows' boxes.
std::uint32_t skeleton_crc(const std::string& path, const std::vector<IndexRow>& rows);

/// Each dataset of the file against its row: place, size, type, shape. First difference, empty when none.
std::string dataset_fault(const ShardContent& shard);

}  // namespace plimsoll::checkpoint
