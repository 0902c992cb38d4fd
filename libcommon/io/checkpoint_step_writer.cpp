#include "io/checkpoint_step_writer.hpp"

#include <algorithm>
#include <functional>
#include <limits>
#include <unordered_map>
#include <utility>

#include "base/error.hpp"
#include "base/run_tool.hpp"
#include "base/units.hpp"
#include "comm/exchange.hpp"
#include "io/checkpoint_box.hpp"

namespace plimsoll::checkpoint
{
namespace
{

// Each open file takes two descriptors; 1024 of them is a common limit.
constexpr std::size_t max_open_files = 200;

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

std::string pack_record(std::size_t file, const FileRecord& record)
{
    MessageWriter message;
    message.add(static_cast<std::uint64_t>(file));
    message.add(record.bytes);
    message.add(record.boxes);
    message.add(record.data_bytes);
    message.add(record.index_crc);
    message.add(record.blocks_crc);
    message.add(record.skeleton_crc);
    message.add_text(record.name);
    return message.bytes();
}

void unpack_records(const std::string& bytes, std::vector<FileRecord>& records)
{
    MessageReader message(bytes);
    while (!message.at_end())
    {
        FileRecord& record = records.at(static_cast<std::size_t>(message.get<std::uint64_t>()));
        record.bytes = message.get<std::int64_t>();
        record.boxes = message.get<std::int64_t>();
        record.data_bytes = message.get<std::int64_t>();
        record.index_crc = message.get<std::uint32_t>();
        record.blocks_crc = message.get<std::uint32_t>();
        record.skeleton_crc = message.get<std::uint32_t>();
        record.name = message.get_text();
    }
}

}  // namespace

std::int64_t planned_bytes(const StepPlan& plan)
{
    std::int64_t bytes = 0;
    ShardPlan shard;
    shard.names = plan.names;
    for (const FilePlan& file : plan.files)
    {
        shard.boxes = file.boxes;
        bytes += planned_bytes(shard);
    }
    return bytes;
}

StepWriter::StepWriter(Settings settings, CheckpointMeta meta, StepPlan plan, Communicator& world)
    : settings_(std::move(settings)), plan_(std::move(plan)), world_(world)
{
    manifest_.meta = std::move(meta);
    manifest_.writer = "plimsoll " + version_with_build();
    manifest_.optional_features = {"element_digest"};
    agree(world_, [this] {
        if (world_.rank() == 0) { prepare_root(); }
    });
    manifest_.uuid = broadcast_bytes(world_, settings_.uuid, 0);
    path_ = broadcast_bytes(world_, directory_ ? directory_->path() : "", 0);
    agree(world_, [this] { create_files(); });
    share_places();
    queue_ = std::make_unique<WriteQueue>(settings_.num_buffers, block_bytes);
}

StepWriter::~StepWriter()
{
    queue_.reset();
    open_.clear();
}

// Any failure ends the step: nothing of it stays.
template<class Body>
void StepWriter::guarded(Body&& body)
{
    try
    {
        body();
    }
    catch (...)
    {
        queue_.reset();
        open_.clear();
        directory_.reset();
        throw;
    }
}

ShardPlan StepWriter::shard_plan(std::size_t file) const
{
    ShardPlan shard;
    shard.uuid = manifest_.uuid;
    shard.writer = manifest_.writer;
    shard.step = manifest_.meta.trainer.step;
    shard.shard = static_cast<std::int64_t>(file);
    shard.num_shards = static_cast<std::int64_t>(plan_.files.size());
    shard.names = plan_.names;
    shard.boxes = plan_.files[file].boxes;
    shard.owners = plan_.files[file].owners;
    if (file == 0) { shard.trainer = &manifest_.meta.trainer; }
    return shard;
}

void StepWriter::prepare_root()
{
    make_directories(settings_.root);
    clean_root(settings_.root);
    check_free_space(settings_.root, planned_bytes(plan_));
    manifest_.sequence = next_sequence(settings_.root);
    // A name of its own: two writers of one step with one uuid must not meet in one directory.
    directory_ = std::make_unique<TemporaryStep>(settings_.root, manifest_.meta.trainer.step, make_uuid());
}

void StepWriter::create_files()
{
    for (std::size_t file = 0; file < plan_.files.size(); ++file)
    {
        if (plan_.files[file].creator != world_.rank()) { continue; }
        crash_point("checkpoint.create");
        const std::string name = shard_file_name(static_cast<std::int64_t>(file), static_cast<std::int64_t>(plan_.files.size()));
        created_[file] = create_shard(path_ + "/" + name, shard_plan(file));
    }
}

void StepWriter::share_places()
{
    MessageWriter message;
    for (const auto& entry : created_)
    {
        std::vector<std::uint64_t> boxes;
        for (const IndexRow& row : entry.second.rows) { boxes.push_back(row.file_offset); }
        message.add(static_cast<std::uint64_t>(entry.first));
        message.add(entry.second.index_offset);
        message.add(entry.second.blocks_offset);
        message.add_list(boxes);
    }
    places_.resize(plan_.files.size());
    for (const std::string& part : all_gather_bytes(world_, message.bytes()))
    {
        MessageReader reader(part);
        while (!reader.at_end())
        {
            FilePlaces& places = places_.at(static_cast<std::size_t>(reader.get<std::uint64_t>()));
            places.index_offset = reader.get<std::int64_t>();
            places.blocks_offset = reader.get<std::int64_t>();
            places.boxes = reader.get_list<std::uint64_t>();
        }
    }
}

ShardLayout StepWriter::layout_of(std::size_t file) const
{
    const auto own = created_.find(file);
    if (own != created_.end()) { return own->second; }
    ShardLayout layout = plan_shard(shard_plan(file));
    layout.path = path_ + "/" + shard_file_name(static_cast<std::int64_t>(file), static_cast<std::int64_t>(plan_.files.size()));
    layout.index_offset = places_[file].index_offset;
    layout.blocks_offset = places_[file].blocks_offset;
    ENSURE(places_[file].boxes.size() == layout.rows.size());
    for (std::size_t k = 0; k < layout.rows.size(); ++k) { layout.rows[k].file_offset = places_[file].boxes[k]; }
    return layout;
}

StepWriter::OpenFile& StepWriter::open(std::size_t file)
{
    const auto found = open_.find(file);
    if (found != open_.end() && found->second.file) { return found->second; }
    if (open_.size() >= max_open_files) { close_files(); }
    OpenFile& opened = open_[file];
    opened.layout = layout_of(file);
    opened.file = std::make_unique<DirectFile>(opened.layout.path, File::Mode::read_write);
    return opened;
}

void StepWriter::close_files()
{
    queue_->drain();
    for (auto& entry : open_)
    {
        // A file's creator syncs it once more; only this rank's node can sync what it wrote.
        if (created_.count(entry.first) == 0) { entry.second.file->buffered().sync(); }
    }
    open_.clear();
}

void StepWriter::note(std::size_t file, std::size_t row, std::int64_t block, const BlockSum& sum)
{
    WrittenBlock written;
    written.digest = sum.digest;
    written.crc = sum.crc;
    written.file = static_cast<std::uint32_t>(file);
    written.row = static_cast<std::uint32_t>(row);
    written.block = static_cast<std::uint32_t>(block);
    written_.push_back(written);
}

void StepWriter::write_box(std::size_t file, std::size_t row, const void* data)
{
    if (failure_) { return; }
    try
    {
        OpenFile& opened = open(file);
        const BoxSums sums =
            checkpoint::write_box(*queue_, *opened.file, opened.layout.rows[row], plan_.files[file].boxes[row], data);
        for (std::size_t block = 0; block < sums.size(); ++block) { note(file, row, static_cast<std::int64_t>(block), sums[block]); }
    }
    catch (const Error&)
    {
        fail(std::current_exception());
    }
}

AlignedBuffer StepWriter::acquire()
{
    try
    {
        if (!failure_) { return queue_->acquire(); }
    }
    catch (const Error&)
    {
        fail(std::current_exception());
    }
    return AlignedBuffer(block_bytes);
}

void StepWriter::write_block(std::size_t file, std::size_t row, std::int64_t block, AlignedBuffer buffer)
{
    if (failure_) { return; }
    try
    {
        OpenFile& opened = open(file);
        note(file, row, block,
             checkpoint::write_block(*queue_, *opened.file, opened.layout.rows[row], plan_.files[file].boxes[row], block,
                                     std::move(buffer)));
    }
    catch (const Error&)
    {
        fail(std::current_exception());
    }
}

void StepWriter::fail(std::exception_ptr error)
{
    if (!failure_) { failure_ = std::move(error); }
}

void StepWriter::share_sums(std::vector<std::vector<BoxSums>>& sums)
{
    for (const FilePlan& file : plan_.files)
    {
        sums.emplace_back();
        for (const CheckpointBox& box : file.boxes)
        {
            const std::int64_t bytes = box.box.num_elements() * dtype_bytes(box.tensor.dtype);
            sums.back().emplace_back(static_cast<std::size_t>(num_blocks(bytes)));
        }
    }
    std::size_t wanted = 0;
    for (const std::vector<BoxSums>& file : sums)
    {
        for (const BoxSums& box : file) { wanted += box.size(); }
    }
    MessageWriter message;
    message.add_list(written_);
    std::size_t found = 0;
    std::vector<std::string> parts = all_gather_bytes(world_, message.bytes());
    for (std::string& part : parts)
    {
        MessageReader reader(part);
        for (const WrittenBlock& written : reader.get_list<WrittenBlock>())
        {
            BlockSum& sum = sums.at(written.file).at(written.row).at(written.block);
            sum.crc = written.crc;
            sum.digest = written.digest;
            ++found;
        }
        part.clear();
    }
    if (found != wanted) { throw InternalError(fmt::format("{} of {} blocks were written", found, wanted)); }
}

void StepWriter::finish_files(const std::vector<std::vector<BoxSums>>& sums)
{
    std::string mine;
    agree(world_, [&] {
        for (auto& entry : created_) { mine += pack_record(entry.first, finish_shard(entry.second, sums[entry.first])); }
    });
    manifest_.files.resize(plan_.files.size());
    for (const std::string& part : all_gather_bytes(world_, mine)) { unpack_records(part, manifest_.files); }
}

std::vector<TensorRecord> StepWriter::seal()
{
    EXPECT(queue_ != nullptr);
    guarded([this] {
        agree(world_, [this] {
            if (failure_) { std::rethrow_exception(failure_); }
            close_files();
        });
        queue_.reset();
        std::vector<std::vector<BoxSums>> sums;
        share_sums(sums);
        finish_files(sums);
        std::unordered_map<std::string, std::uint64_t> digests;
        for (std::size_t file = 0; file < sums.size(); ++file)
        {
            for (std::size_t row = 0; row < sums[file].size(); ++row)
            {
                const CheckpointTensor& tensor = plan_.files[file].boxes[row].tensor;
                digests[tensor_path(tensor.state, tensor.name)] += box_digest(sums[file][row]);
            }
        }
        for (const CheckpointTensor& tensor : plan_.tensors)
        {
            TensorRecord record;
            record.tensor = tensor;
            record.digest = digests[tensor_path(tensor.state, tensor.name)];
            manifest_.tensors.push_back(record);
        }
    });
    return manifest_.tensors;
}

SavedStep StepWriter::commit()
{
    const std::string text = manifest_text(manifest_);
    crash_point("checkpoint.manifest");
    write_file(directory_->path() + "/" + manifest_file, text);
    crash_point("checkpoint.commit");
    write_file(directory_->path() + "/" + commit_file, commit_text(text));
    SavedStep saved;
    saved.path = directory_->publish();
    saved.bytes = static_cast<std::int64_t>(text.size() + commit_text(text).size());
    for (const FileRecord& record : manifest_.files) { saved.bytes += record.bytes; }
    return saved;
}

SavedStep StepWriter::publish()
{
    EXPECT(manifest_.files.size() == plan_.files.size());
    SavedStep saved;
    guarded([&] {
        agree(world_, [&] {
            if (world_.rank() == 0) { saved = commit(); }
        });
        MessageWriter message;
        message.add(saved.bytes);
        message.add_text(saved.path);
        const std::string bytes = broadcast_bytes(world_, message.bytes(), 0);
        MessageReader reader(bytes);
        saved.bytes = reader.get<std::int64_t>();
        saved.path = reader.get_text();
    });
    return saved;
}

}  // namespace plimsoll::checkpoint
