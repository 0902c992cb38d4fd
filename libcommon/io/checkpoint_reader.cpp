#include <algorithm>
#include <cstring>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "io/checkpoint.hpp"
#include "io/checkpoint_blocks.hpp"
#include "io/checkpoint_box.hpp"
#include "io/checkpoint_format.hpp"
#include "io/checkpoint_shard.hpp"

namespace plimsoll
{

using namespace checkpoint;

namespace
{

// A tensor in one state and where its boxes lie.
struct StoredTensor
{
    CheckpointTensor tensor;
    std::vector<std::pair<std::size_t, std::size_t>> boxes; ///< shard, row
};

using TensorKey = std::pair<CheckpointState, std::string>;

}  // namespace

struct CheckpointReader::Impl
{
    std::string path;
    Manifest manifest;
    std::vector<ShardContent> shards;
    std::map<TensorKey, StoredTensor> tensors;
    std::unique_ptr<BlockSource> blocks;

    void collect_boxes();
    void check_coverage() const;
    const StoredTensor& find(CheckpointState state, const std::string& name) const;
    std::int64_t copy_box(std::size_t shard, std::size_t row, const Box& wanted, std::int64_t element_bytes, char* data) const;
};

void CheckpointReader::Impl::collect_boxes()
{
    for (const TensorRecord& record : manifest.tensors)
    {
        StoredTensor& stored = tensors[{record.tensor.state, record.tensor.name}];
        stored.tensor = record.tensor;
    }
    for (std::size_t s = 0; s < shards.size(); ++s)
    {
        for (std::size_t r = 0; r < shards[s].rows.size(); ++r)
        {
            const IndexRow& row = shards[s].rows[r];
            const auto found = tensors.find({static_cast<CheckpointState>(row.state), shards[s].name(row)});
            VALIDATE(found != tensors.end(), FormatError, "{}: is not in the manifest", shards[s].dataset_text(row));
            const CheckpointTensor& tensor = found->second.tensor;
            VALIDATE(row.dtype == static_cast<std::uint8_t>(tensor.dtype) && row.num_dims == tensor.shape.size(), FormatError,
                     "{}: has another type or number of dims than the manifest says", shards[s].dataset_text(row));
            found->second.boxes.emplace_back(s, r);
        }
    }
}

void CheckpointReader::Impl::check_coverage() const
{
    for (const auto& entry : tensors)
    {
        std::vector<Box> boxes;
        for (const auto& place : entry.second.boxes) { boxes.push_back(row_box(shards[place.first].rows[place.second])); }
        const std::string fault = coverage_fault(entry.second.tensor.shape, boxes);
        VALIDATE(fault.empty(), FormatError, "{}: {}: {}", path, tensor_path(entry.first.first, entry.first.second), fault);
    }
}

const StoredTensor& CheckpointReader::Impl::find(CheckpointState state, const std::string& name) const
{
    const auto found = tensors.find({state, name});
    VALIDATE(found != tensors.end(), FormatError, "{}: holds no '{}'", path, tensor_path(state, name));
    return found->second;
}

std::int64_t CheckpointReader::Impl::copy_box(std::size_t shard, std::size_t row, const Box& wanted,
                                              std::int64_t element_bytes, char* data) const
{
    const Box stored = row_box(shards[shard].rows[row]);
    BoxRuns runs(stored, wanted);
    const std::int64_t copied = runs.num_elements();
    const std::int64_t block_elements = block_bytes / element_bytes;
    const std::int64_t stored_blocks = num_blocks(static_cast<std::int64_t>(shards[shard].rows[row].num_bytes));
    ElementRun run;
    while (runs.next(run))
    {
        // Runs ascend in the stored box: each block is loaded once.
        while (run.count > 0)
        {
            BlockPlace place;
            place.shard = shard;
            place.row = row;
            place.block = run.source / block_elements;
            const std::int64_t within = run.source % block_elements;
            const std::int64_t now = std::min(run.count, block_elements - within);
            BlockPlace next = place;
            ++next.block;
            const bool goes_on = run.count > now && next.block < stored_blocks;
            const char* bytes = blocks->load(place, goes_on ? &next : nullptr);
            std::memcpy(data + run.target * element_bytes, bytes + within * element_bytes,
                        static_cast<std::size_t>(now * element_bytes));
            run.source += now;
            run.target += now;
            run.count -= now;
        }
    }
    return copied;
}

CheckpointReader::CheckpointReader(const std::string& step_dir) : impl_(std::make_unique<Impl>())
{
    impl_->path = step_dir;
    impl_->manifest = read_manifest(step_dir);
    const std::vector<std::string> faults = size_faults(step_dir, impl_->manifest);
    VALIDATE(faults.empty(), FormatError, "{}", faults.front());
    VALIDATE(!impl_->manifest.files.empty(), FormatError, "{}/{}: lists no files", step_dir, manifest_file);
    for (std::size_t k = 0; k < impl_->manifest.files.size(); ++k)
    {
        impl_->shards.push_back(open_shard(step_dir, impl_->manifest, k));
    }
    impl_->manifest.meta.trainer = read_trainer(step_dir, impl_->manifest);
    impl_->collect_boxes();
    impl_->check_coverage();
    impl_->blocks = std::make_unique<BlockSource>(impl_->shards);
}

CheckpointReader::~CheckpointReader() = default;

const CheckpointMeta& CheckpointReader::meta() const
{
    return impl_->manifest.meta;
}

std::vector<CheckpointTensor> CheckpointReader::tensors() const
{
    std::vector<CheckpointTensor> list;
    for (const TensorRecord& record : impl_->manifest.tensors) { list.push_back(record.tensor); }
    return list;
}

bool CheckpointReader::has(CheckpointState state, const std::string& tensor) const
{
    return impl_->tensors.count({state, tensor}) > 0;
}

void CheckpointReader::read(CheckpointState state, const std::string& tensor, const Box& box, void* data) const
{
    const StoredTensor& stored = impl_->find(state, tensor);
    VALIDATE(box_inside(box, stored.tensor.shape), FormatError, "{}: box {} is not inside {} of shape {}", impl_->path,
             box_text(box), tensor_path(state, tensor), shape_text(stored.tensor.shape));
    const std::int64_t element_bytes = dtype_bytes(stored.tensor.dtype);
    std::int64_t copied = 0;
    for (const auto& place : stored.boxes)
    {
        copied += impl_->copy_box(place.first, place.second, box, element_bytes, static_cast<char*>(data));
    }
    ENSURE(copied == tensor_elements(box.shape));  // coverage was proven when the step was opened
}

CheckpointInfo CheckpointReader::info() const
{
    CheckpointInfo info;
    info.path = impl_->path;
    info.writer = impl_->manifest.writer;
    info.uuid = impl_->manifest.uuid;
    info.format_version = fmt::format("{}.{}", impl_->manifest.version[0], impl_->manifest.version[1]);
    for (const FileRecord& file : impl_->manifest.files)
    {
        info.files.push_back({file.name, file.bytes, file.data_bytes, file.boxes});
        info.bytes += file.bytes;
    }
    for (const TensorRecord& record : impl_->manifest.tensors)
    {
        const auto boxes = impl_->find(record.tensor.state, record.tensor.name).boxes.size();
        info.tensors.push_back({record.tensor, static_cast<std::int64_t>(boxes), record.digest});
    }
    return info;
}

}  // namespace plimsoll
