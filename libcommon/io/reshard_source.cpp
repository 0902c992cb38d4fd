#include "io/reshard_source.hpp"

#include <utility>

#include "base/error.hpp"
#include "comm/exchange.hpp"
#include "io/file.hpp"

namespace plimsoll::checkpoint
{
namespace
{

void check_rows(const StepSource& source)
{
    std::unordered_map<std::string, const CheckpointTensor*> tensors;
    for (const TensorRecord& record : source.manifest.tensors)
    {
        tensors[tensor_path(record.tensor.state, record.tensor.name)] = &record.tensor;
    }
    for (const ShardContent& shard : source.shards)
    {
        for (const IndexRow& row : shard.rows)
        {
            const auto found = tensors.find(tensor_path(static_cast<CheckpointState>(row.state), shard.name(row)));
            VALIDATE(found != tensors.end(), FormatError, "{}: is not in the manifest", shard.dataset_text(row));
            VALIDATE(row.dtype == static_cast<std::uint8_t>(found->second->dtype) &&
                         row.num_dims == found->second->shape.size(),
                     FormatError, "{}: has another type or number of dims than the manifest says", shard.dataset_text(row));
        }
    }
}

StepSource open_here(const std::string& step_dir)
{
    StepSource source;
    source.path = step_dir;
    source.manifest = read_manifest(step_dir);
    const std::vector<std::string> faults = size_faults(step_dir, source.manifest);
    VALIDATE(faults.empty(), FormatError, "{}", faults.front());
    VALIDATE(!source.manifest.files.empty(), FormatError, "{}/{}: lists no files", step_dir, manifest_file);
    for (std::size_t k = 0; k < source.manifest.files.size(); ++k)
    {
        source.shards.push_back(open_shard(step_dir, source.manifest, k));
    }
    check_rows(source);
    source.manifest.meta.trainer = read_trainer(step_dir, source.manifest);
    return source;
}

std::string pack(const StepSource& source)
{
    MessageWriter message;
    message.add_text(source.path);
    message.add_text(manifest_text(source.manifest));
    for (const ShardContent& shard : source.shards)
    {
        message.add_text(shard.path);
        message.add_list(shard.rows);
        message.add_list(shard.blocks);
        message.add(static_cast<std::uint64_t>(shard.names.size()));
        for (const std::string& name : shard.names) { message.add_text(name); }
    }
    return message.bytes();
}

StepSource unpack(const std::string& bytes)
{
    MessageReader message(bytes);
    StepSource source;
    source.path = message.get_text();
    source.manifest = parse_manifest(message.get_text(), source.path + "/" + manifest_file);
    for (const FileRecord& record : source.manifest.files)
    {
        ShardContent shard;
        shard.record = record;
        shard.path = message.get_text();
        shard.rows = message.get_list<IndexRow>();
        shard.blocks = message.get_list<std::uint32_t>();
        shard.names.resize(static_cast<std::size_t>(message.get<std::uint64_t>()));
        for (std::string& name : shard.names) { name = message.get_text(); }
        source.shards.push_back(std::move(shard));
    }
    return source;
}

}  // namespace

StepSource open_source(const std::string& step_dir, Communicator& world)
{
    StepSource source;
    agree(world, [&] {
        if (world.rank() == 0) { source = open_here(step_dir); }
    });
    if (world.size() == 1) { return source; }
    const std::string bytes = broadcast_bytes(world, world.rank() == 0 ? pack(source) : "", 0);
    return world.rank() == 0 ? std::move(source) : unpack(bytes);
}

ScheduledBlocks::ScheduledBlocks(const std::vector<ShardContent>& shards,
                                 const std::vector<std::pair<std::size_t, std::size_t>>& places, const ReshardSchedule& schedule,
                                 std::size_t depth)
    : shards_(shards), places_(places), schedule_(schedule), depth_(depth), files_(shards)
{
    EXPECT(depth_ > 0);
}

ScheduledBlocks::~ScheduledBlocks()
{
    for (Ahead& ahead : ahead_)
    {
        if (ahead.done.valid()) { ahead.done.wait(); }
    }
}

std::uint64_t ScheduledBlocks::key(std::size_t use) const
{
    const ReshardSchedule::Use& what = schedule_.uses()[use];
    return (static_cast<std::uint64_t>(what.source) << 32) | what.block;
}

AlignedBuffer ScheduledBlocks::take_buffer(std::int64_t bytes)
{
    // Large buffers go round; a small block in a large buffer would take more memory than the schedule knows.
    if (bytes > block_bytes / 2 && spare_.size() >= bytes) { return std::move(spare_); }
    return AlignedBuffer(bytes);
}

void ScheduledBlocks::read_ahead()
{
    for (; next_ < schedule_.uses().size() && ahead_.size() < depth_; ++next_)
    {
        const ReshardSchedule::Use& what = schedule_.uses()[next_];
        if (!what.load) { continue; }
        const auto place = places_[what.source];
        const ShardContent& shard = shards_[place.first];
        const IndexRow& row = shard.rows[place.second];
        const std::int64_t block = what.block;
        Ahead ahead;
        ahead.use = next_;
        ahead.buffer = take_buffer(checkpoint::block_size(row, block));
        // Opened here, the list belongs to this thread; held by the reading one, whatever the list forgets.
        const std::shared_ptr<const DirectFile> file = files_.at(place.first);
        char* buffer = ahead.buffer.data();
        ahead.done = std::async(std::launch::async,
                                [file, &shard, &row, block, buffer] { read_block(*file, shard, row, block, buffer); });
        ahead_.push_back(std::move(ahead));
    }
}

const char* ScheduledBlocks::at(std::size_t use)
{
    const ReshardSchedule::Use& what = schedule_.uses()[use];
    if (what.load)
    {
        for (const std::size_t left : what.leaves)
        {
            const auto found = held_.find(key(left));
            EXPECT(found != held_.end());
            if (found->second.size() >= block_bytes) { spare_ = std::move(found->second); }
            held_.erase(found);
        }
        read_ahead();
        Ahead ahead = std::move(ahead_.front());
        ahead_.pop_front();
        EXPECT(ahead.use == use);
        ahead.done.get();
        bytes_read_ += schedule_.block_size(what.source, what.block);
        held_[key(use)] = std::move(ahead.buffer);
        read_ahead();
    }
    return held_.at(key(use)).data();
}

}  // namespace plimsoll::checkpoint
