// One writing rank, one shard file. Several ranks and files will differ in who creates, writes and finishes; the steps are
// those of checkpoint_shard.hpp and checkpoint_steps.hpp already.

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "base/run_tool.hpp"
#include "base/units.hpp"
#include "io/checkpoint.hpp"
#include "io/checkpoint_box.hpp"
#include "io/checkpoint_format.hpp"
#include "io/checkpoint_shard.hpp"
#include "io/checkpoint_steps.hpp"
#include "io/direct_file.hpp"

namespace plimsoll
{

using namespace checkpoint;

namespace
{

// Blocks under way: one is filled, two are written, one waits.
constexpr int num_buffers = 4;

using TensorKey = std::pair<CheckpointState, std::string>;

std::vector<std::string> names_in_order(const std::vector<CheckpointBox>& boxes)
{
    std::vector<std::string> names;
    std::unordered_map<std::string, bool> seen;
    for (const CheckpointBox& box : boxes)
    {
        const std::string& name = box.tensor.name;
        EXPECT(!name.empty() && name.find('/') == std::string::npos && name != "." && name.find('\0') == std::string::npos);
        if (!std::exchange(seen[name], true)) { names.push_back(name); }
    }
    return names;
}

// State by state, tensors in the order in which the caller names them: a file looks the same however boxes were listed.
void sort_boxes(std::vector<CheckpointBox>& boxes, const std::vector<std::string>& names)
{
    std::unordered_map<std::string, std::size_t> place;
    for (std::size_t k = 0; k < names.size(); ++k) { place.emplace(names[k], k); }
    std::stable_sort(boxes.begin(), boxes.end(), [&place](const CheckpointBox& a, const CheckpointBox& b) {
        return std::make_tuple(a.tensor.state, place.at(a.tensor.name), a.box.offset) <
               std::make_tuple(b.tensor.state, place.at(b.tensor.name), b.box.offset);
    });
}

void check_coverage(const std::vector<CheckpointBox>& boxes)
{
    std::map<TensorKey, std::vector<const CheckpointBox*>> tensors;
    for (const CheckpointBox& box : boxes) { tensors[{box.tensor.state, box.tensor.name}].push_back(&box); }
    for (const auto& [key, parts] : tensors)
    {
        std::vector<Box> list;
        for (const CheckpointBox* part : parts)
        {
            EXPECT(part->tensor.shape == parts.front()->tensor.shape && part->tensor.dtype == parts.front()->tensor.dtype);
            list.push_back(part->box);
        }
        const std::string fault = coverage_fault(parts.front()->tensor.shape, list);
        if (!fault.empty())
        {
            throw InternalError(fmt::format("checkpoint plan: {}: {}", tensor_path(key.first, key.second), fault));
        }
    }
}

void check_free_space(const std::string& root, std::int64_t planned)
{
    const auto wanted = static_cast<std::int64_t>(static_cast<double>(planned) * 1.02);
    const std::int64_t free = free_bytes(root);
    VALIDATE(free >= wanted, IoError,
             "cannot save {} to '{}' (free space {}). free some space, keep fewer checkpoints or save elsewhere",
             format_storage(static_cast<double>(wanted)), root, format_storage(static_cast<double>(free)));
}

std::int64_t next_sequence(const std::string& root)
{
    std::int64_t sequence = 0;
    for (const StepEntry& entry : list_steps(root))
    {
        // A manifest that cannot be read claims the largest value; it must not wrap around.
        if (entry.sequence < std::numeric_limits<std::int64_t>::max()) { sequence = std::max(sequence, entry.sequence); }
    }
    return sequence + 1;
}

}  // namespace

struct CheckpointWriter::Impl
{
    std::string root;
    Manifest manifest;
    ShardPlan plan;
    std::map<TensorKey, std::vector<std::size_t>> rows_of;
    std::vector<std::optional<BoxSums>> sums;
    std::unique_ptr<TemporaryStep> directory;
    ShardLayout layout;
    std::unique_ptr<DirectFile> file;
    std::unique_ptr<WriteQueue> queue;

    std::string context() const { return fmt::format("while saving step {} to '{}'", plan.step, root); }
    std::size_t row_of(CheckpointState state, const std::string& tensor, const Box& box) const;
    void begin(std::vector<CheckpointBox> boxes);
    std::vector<TensorRecord> tensor_records() const;
    SavedStep commit();
};

void CheckpointWriter::Impl::begin(std::vector<CheckpointBox> boxes)
{
    plan.names = names_in_order(boxes);
    sort_boxes(boxes, plan.names);
    check_coverage(boxes);
    plan.boxes = std::move(boxes);
    plan.uuid = manifest.uuid = make_uuid();
    plan.writer = manifest.writer = "plimsoll " + version_with_build();
    plan.step = manifest.meta.trainer.step;
    plan.trainer = &manifest.meta.trainer;
    manifest.optional_features = {"element_digest"};
    sums.resize(plan.boxes.size());
    for (std::size_t k = 0; k < plan.boxes.size(); ++k)
    {
        rows_of[{plan.boxes[k].tensor.state, plan.boxes[k].tensor.name}].push_back(k);
    }
    make_directories(root);
    clean_root(root);
    check_free_space(root, planned_bytes(plan));
    manifest.sequence = next_sequence(root);
    directory = std::make_unique<TemporaryStep>(root, plan.step, plan.uuid);
    crash_point("checkpoint.create");
    layout = create_shard(directory->path() + "/" + shard_file_name(plan.shard, plan.num_shards), plan);
    file = std::make_unique<DirectFile>(layout.path, File::Mode::read_write);
    queue = std::make_unique<WriteQueue>(*file, num_buffers, block_bytes);
}

std::size_t CheckpointWriter::Impl::row_of(CheckpointState state, const std::string& tensor, const Box& box) const
{
    const auto found = rows_of.find({state, tensor});
    if (found != rows_of.end())
    {
        for (const std::size_t row : found->second)
        {
            if (plan.boxes[row].box == box) { return row; }
        }
    }
    throw InternalError(fmt::format("box {} of {} is not planned", box_text(box), tensor_path(state, tensor)));
}

std::vector<TensorRecord> CheckpointWriter::Impl::tensor_records() const
{
    std::vector<TensorRecord> records;
    for (std::size_t k = 0; k < plan.boxes.size(); ++k)
    {
        const CheckpointTensor& tensor = plan.boxes[k].tensor;
        if (records.empty() || records.back().tensor.state != tensor.state || records.back().tensor.name != tensor.name)
        {
            TensorRecord record;
            record.tensor = tensor;
            records.push_back(record);
        }
        records.back().digest += sums[k]->digest;
    }
    return records;
}

SavedStep CheckpointWriter::Impl::commit()
{
    std::vector<BoxSums> all;
    for (std::size_t k = 0; k < sums.size(); ++k)
    {
        const CheckpointBox& planned = plan.boxes[k];
        if (!sums[k])
        {
            throw InternalError(fmt::format("box {} of {} was not written", box_text(planned.box),
                                            tensor_path(planned.tensor.state, planned.tensor.name)));
        }
        all.push_back(*sums[k]);
    }
    queue->drain();
    queue.reset();
    file.reset();
    manifest.files = {finish_shard(layout, all)};
    manifest.tensors = tensor_records();
    const std::string text = manifest_text(manifest);
    crash_point("checkpoint.manifest");
    write_file(directory->path() + "/" + manifest_file, text);
    crash_point("checkpoint.commit");
    write_file(directory->path() + "/" + commit_file, commit_text(text));
    SavedStep saved;
    saved.path = directory->publish();
    saved.bytes = static_cast<std::int64_t>(text.size() + commit_text(text).size());
    for (const FileRecord& record : manifest.files) { saved.bytes += record.bytes; }
    return saved;
}

CheckpointWriter::CheckpointWriter(std::string root, CheckpointMeta meta, std::vector<CheckpointBox> boxes)
    : impl_(std::make_unique<Impl>())
{
    impl_->root = std::move(root);
    impl_->manifest.meta = std::move(meta);
    with_context(fmt::format("while saving step {} to '{}'", impl_->manifest.meta.trainer.step, impl_->root),
                 [&] { impl_->begin(std::move(boxes)); });
}

CheckpointWriter::~CheckpointWriter() = default;

void CheckpointWriter::write(CheckpointState state, const std::string& tensor, const Box& box, const void* data)
{
    EXPECT(impl_->queue != nullptr);
    const std::size_t row = impl_->row_of(state, tensor, box);
    if (impl_->sums[row])
    {
        throw InternalError(fmt::format("box {} of {} was written twice", box_text(box), tensor_path(state, tensor)));
    }
    impl_->sums[row] = with_context(impl_->context(), [&] {
        return write_box(*impl_->queue, impl_->layout.rows[row], impl_->plan.boxes[row], data);
    });
}

SavedStep CheckpointWriter::commit()
{
    EXPECT(impl_->queue != nullptr);
    return with_context(impl_->context(), [&] { return impl_->commit(); });
}

}  // namespace plimsoll
