#include "io/checkpoint_blocks.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"

namespace plimsoll::checkpoint
{

BlockSource::~BlockSource()
{
    if (pending_.valid()) { pending_.wait(); }
}

std::int64_t BlockSource::block_size(const BlockPlace& place) const
{
    const auto bytes = static_cast<std::int64_t>(shards_[place.shard].rows[place.row].num_bytes);
    return std::min(block_bytes, bytes - place.block * block_bytes);
}

const DirectFile& BlockSource::file(std::size_t shard)
{
    constexpr std::size_t max_open = 32;
    const auto found = files_.find(shard);
    if (found != files_.end()) { return *found->second; }
    if (files_.size() >= max_open) { files_.clear(); }
    auto& opened = files_[shard];
    opened = std::make_unique<DirectFile>(shards_[shard].path, File::Mode::read);
    return *opened;
}

void BlockSource::read(Slot& slot, const BlockPlace& place)
{
    const ShardContent& shard = shards_[place.shard];
    const IndexRow& row = shard.rows[place.row];
    const std::int64_t bytes = block_size(place);
    // Most boxes are small; a buffer grows to what was needed.
    if (slot.buffer.size() < bytes) { slot.buffer = AlignedBuffer(bytes); }
    slot.used = false;
    file(place.shard).read_at(slot.buffer.data(), bytes, static_cast<std::int64_t>(row.file_offset) + place.block * block_bytes);
    const std::uint32_t wanted = shard.blocks[static_cast<std::size_t>(row.first_block) + static_cast<std::size_t>(place.block)];
    const std::uint32_t found = crc32c(slot.buffer.data(), bytes);
    VALIDATE(found == wanted, FormatError, "{}: block {} of {} is damaged (crc {:08x}, {:08x} when it was written)",
             shard.dataset_text(row), place.block + 1, num_blocks(static_cast<std::int64_t>(row.num_bytes)), found, wanted);
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
        else { read(current_, place); }
    }
    if (next != nullptr && !(*next == place) && !(ahead_.used && ahead_.place == *next))
    {
        const BlockPlace wanted = *next;
        (void)file(wanted.shard);  // opened here: the map belongs to this thread
        pending_ = std::async(std::launch::async, [this, wanted] { read(ahead_, wanted); });
    }
    return current_.buffer.data();
}

}  // namespace plimsoll::checkpoint
