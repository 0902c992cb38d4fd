#include "io/checkpoint_blocks.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace plimsoll::checkpoint
{

std::shared_ptr<const DirectFile> ShardFiles::at(std::size_t shard)
{
    constexpr std::size_t max_open = 32;
    const auto found = files_.find(shard);
    if (found != files_.end()) { return found->second; }
    if (files_.size() >= max_open) { files_.clear(); }
    auto& opened = files_[shard];
    opened = std::make_shared<const DirectFile>(shards_[shard].path, File::Mode::read);
    return opened;
}

std::int64_t block_size(const IndexRow& row, std::int64_t block)
{
    return std::min(block_bytes, static_cast<std::int64_t>(row.num_bytes) - block * block_bytes);
}

void read_block(const DirectFile& file, const ShardContent& shard, const IndexRow& row, std::int64_t block, char* buffer)
{
    const std::int64_t bytes = block_size(row, block);
    file.read_at(buffer, bytes, static_cast<std::int64_t>(row.file_offset) + block * block_bytes);
    const std::uint32_t wanted = shard.blocks[static_cast<std::size_t>(row.first_block) + static_cast<std::size_t>(block)];
    const std::uint32_t found = crc32c(buffer, bytes);
    VALIDATE(found == wanted, FormatError, "{}: block {} of {} is damaged (crc {:08x}, {:08x} when it was written)",
             shard.dataset_text(row), block + 1, num_blocks(static_cast<std::int64_t>(row.num_bytes)), found, wanted);
}

BlockSource::~BlockSource()
{
    if (pending_.valid()) { pending_.wait(); }
}

std::int64_t BlockSource::block_size(const BlockPlace& place) const
{
    return checkpoint::block_size(shards_[place.shard].rows[place.row], place.block);
}

void BlockSource::read(Slot& slot, const BlockPlace& place, const DirectFile& file)
{
    const ShardContent& shard = shards_[place.shard];
    const std::int64_t bytes = block_size(place);
    // Most boxes are small; a buffer grows to what was needed.
    if (slot.buffer.size() < bytes) { slot.buffer = AlignedBuffer(bytes); }
    slot.used = false;
    read_block(file, shard, shard.rows[place.row], place.block, slot.buffer.data());
    slot.place = place;
    slot.used = true;
}

const char* BlockSource::load(const BlockPlace& place, const BlockPlace* next)
{
    if (pending_.valid())
    {
        try
        {
            pending_.get();
        }
        catch (const Error&)
        {
            ahead_.used = false;  // the block is read again, and the error shown, when somebody wants it
        }
    }
    if (!(current_.used && current_.place == place))
    {
        if (ahead_.used && ahead_.place == place) { std::swap(current_, ahead_); }
        else { read(current_, place, *files_.at(place.shard)); }
    }
    if (next != nullptr && !(*next == place) && !(ahead_.used && ahead_.place == *next))
    {
        const BlockPlace wanted = *next;
        const std::shared_ptr<const DirectFile> file = files_.at(wanted.shard);  // opened here: the list belongs to this thread
        pending_ = std::async(std::launch::async, [this, wanted, file] { read(ahead_, wanted, *file); });
    }
    return current_.buffer.data();
}

}  // namespace plimsoll::checkpoint
