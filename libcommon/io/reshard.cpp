#include "io/reshard.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <set>
#include <utility>

#include "base/digest.hpp"
#include "base/error.hpp"
#include "base/output_folder.hpp"
#include "base/units.hpp"
#include "comm/exchange.hpp"
#include "io/checkpoint_layout.hpp"
#include "io/checkpoint_plan.hpp"
#include "io/checkpoint_step_writer.hpp"
#include "io/file.hpp"
#include "io/reshard_source.hpp"
#include "layout/model_spec.hpp"
#include "layout/reshard_plan.hpp"

namespace plimsoll
{

using namespace checkpoint;

namespace
{

// What the process takes without any buffer, measured with room to spare.
constexpr std::int64_t program_bytes = std::int64_t{48} << 20;
constexpr int fewest_buffers = 2;
constexpr int most_buffers = 4;
// Of the source: one block in the cache at least, one read ahead, one spare.
constexpr std::int64_t fewest_source_blocks = 3;
// With memory for it a second one is read ahead: a disk wants more than one request at a time.
constexpr std::int64_t blocks_for_depth_two = 12;

std::vector<StateType> states_of(const Manifest& manifest)
{
    std::map<CheckpointState, Dtype> types;
    for (const TensorRecord& record : manifest.tensors)
    {
        const auto found = types.emplace(record.tensor.state, record.tensor.dtype);
        VALIDATE(found.first->second == record.tensor.dtype, FormatError, "tensors of '{}' have several types ({} and {})",
                 checkpoint_state_path(record.tensor.state), dtype_name(found.first->second), dtype_name(record.tensor.dtype));
    }
    VALIDATE(types.count(CheckpointState::model) > 0, FormatError, "the checkpoint holds no parameters");
    std::vector<StateType> states;
    for (const auto& entry : types)
    {
        StateType type;
        type.state = entry.first;
        type.dtype = entry.second;
        states.push_back(type);
    }
    return states;
}

void check_tensors(const Manifest& manifest, const ModelSpec& model, const std::vector<StateType>& states)
{
    std::set<std::pair<CheckpointState, std::string>> stored;
    for (const TensorRecord& record : manifest.tensors) { stored.emplace(record.tensor.state, record.tensor.name); }
    std::map<std::string, std::vector<std::int64_t>> shapes;
    for (const TensorSpec& spec : canonical_tensors(model))
    {
        shapes[spec.name] = spec.shape;
        for (const StateType& type : states)
        {
            VALIDATE(stored.count({type.state, spec.name}) > 0, FormatError, "tensor '{}' of '{}' is missing in the checkpoint",
                     spec.name, checkpoint_state_path(type.state));
        }
    }
    for (const TensorRecord& record : manifest.tensors)
    {
        const auto found = shapes.find(record.tensor.name);
        VALIDATE(found != shapes.end(), FormatError, "tensor '{}' of the checkpoint is not one of its model's", record.tensor.name);
        VALIDATE(found->second == record.tensor.shape, FormatError, "tensor '{}' has shape {} in the checkpoint, its model needs {}",
                 record.tensor.name, shape_text(record.tensor.shape), shape_text(found->second));
    }
}

void check_layout(const ParallelLayout& layout, const ModelSpec& model)
{
    ParallelLayout shape = layout;
    shape.micro_batch = 1;
    shape.global_batch = layout.dp * layout.pp;  // as any schedule would have it: files do not depend on the batch
    const std::vector<std::string> faults = validate(shape, model, shape.world());
    VALIDATE(faults.empty(), UsageError, "{}", fmt::join(faults, "; "));
}

/// Files know each other by uuid; the same source cut in the same way gives the same files.
std::string derived_uuid(const std::string& source_uuid, const std::string& layout)
{
    std::string uuid = sha256_hex("reshard " + source_uuid + " " + layout).substr(0, 32);
    for (const std::size_t at : {8, 13, 18, 23}) { uuid.insert(at, "-"); }
    return uuid;
}

}  // namespace

struct Reshard::Impl
{
    Impl(ReshardOptions given, Communicator& all) : options(std::move(given)), world(all) {}

    ReshardOptions options;
    Communicator& world;
    StepSource source;
    StepPlan step;
    std::vector<std::pair<std::size_t, std::size_t>> source_places, target_places; ///< file, row of the plan's boxes
    std::unique_ptr<ReshardPlan> plan;
    std::unique_ptr<ReshardSchedule> schedule;
    ReshardSummary summary;
    int num_buffers = fewest_buffers;
    std::int64_t depth = 1; ///< blocks read ahead
    std::int64_t fixed_bytes = 0;

    void plan_target();
    void plan_copies();
    std::int64_t plan_memory();
    void plan_work();
    void check_place();
    void summarize();
    void copy(StepWriter& writer, const std::function<void(const ReshardProgress&)>& progress, std::int64_t& read);
    void fill(const ReshardUnit& unit, ScheduledBlocks& blocks, std::size_t& use, char* buffer);
    void compare_digests(const std::vector<TensorRecord>& written) const;
};

void Reshard::Impl::plan_target()
{
    const Manifest& manifest = source.manifest;
    const ModelSpec model = parse_model_spec(manifest.meta.model_config, "config of " + source.path);
    const std::vector<StateType> states = states_of(manifest);
    check_tensors(manifest, model, states);
    check_layout(options.layout, model);
    step = plan_step(held_boxes(model, options.layout, states), 0);
    // The ranks of the target became files; now they are made by the ranks that are here.
    const auto num_files = static_cast<std::int64_t>(step.files.size());
    for (std::int64_t k = 0; k < num_files; ++k) { step.files[static_cast<std::size_t>(k)].creator = k * world.size() / num_files; }
}

void Reshard::Impl::plan_copies()
{
    std::vector<ReshardTensor> tensors;
    std::map<std::string, std::size_t> numbers;
    for (const CheckpointTensor& tensor : step.tensors)
    {
        ReshardTensor entry;
        entry.name = tensor_path(tensor.state, tensor.name);
        entry.shape = tensor.shape;
        entry.element_bytes = dtype_bytes(tensor.dtype);
        numbers[entry.name] = tensors.size();
        tensors.push_back(std::move(entry));
    }
    std::vector<ReshardBox> sources, targets;
    for (std::size_t file = 0; file < source.shards.size(); ++file)
    {
        const ShardContent& shard = source.shards[file];
        for (std::size_t row = 0; row < shard.rows.size(); ++row)
        {
            ReshardBox box;
            box.tensor = numbers.at(tensor_path(static_cast<CheckpointState>(shard.rows[row].state), shard.name(shard.rows[row])));
            box.file = static_cast<std::int64_t>(file);
            box.box = row_box(shard.rows[row]);
            sources.push_back(std::move(box));
            source_places.emplace_back(file, row);
        }
    }
    for (std::size_t file = 0; file < step.files.size(); ++file)
    {
        for (std::size_t row = 0; row < step.files[file].boxes.size(); ++row)
        {
            const CheckpointBox& planned = step.files[file].boxes[row];
            ReshardBox box;
            box.tensor = numbers.at(tensor_path(planned.tensor.state, planned.tensor.name));
            box.file = static_cast<std::int64_t>(file);
            box.box = planned.box;
            targets.push_back(std::move(box));
            target_places.emplace_back(file, row);
        }
    }
    plan = std::make_unique<ReshardPlan>(std::move(tensors), std::move(sources), std::move(targets));
    with_context(source.path, [this] { plan->prove_coverage(); });
}

// Divides the memory: program and metadata, write buffers, source blocks. Returns the bytes of the cache.
std::int64_t Reshard::Impl::plan_memory()
{
    const auto num_boxes = static_cast<std::int64_t>(plan->sources().size() + plan->targets().size());
    const auto num_copies = static_cast<std::int64_t>(plan->copies().size());
    const std::int64_t num_blocks_total = plan->total_bytes() / block_bytes + num_boxes;
    fixed_bytes = program_bytes + num_boxes * 1024 + num_copies * 256 + num_blocks_total * 256;
    const std::int64_t needed = fixed_bytes + (fewest_buffers + fewest_source_blocks) * block_bytes;
    VALIDATE(options.memory_limit >= needed, UsageError,
             "memory limit {} is too small (this checkpoint needs at least {} per rank). try --memory-limit {}MiB",
             format_memory(static_cast<double>(options.memory_limit)), format_memory(static_cast<double>(needed)),
             (needed >> 20) + 1);
    const std::int64_t blocks = (options.memory_limit - fixed_bytes) / block_bytes;
    num_buffers = static_cast<int>(std::clamp<std::int64_t>(blocks / 4, fewest_buffers, most_buffers));
    depth = blocks >= blocks_for_depth_two ? 2 : 1;
    return (blocks - num_buffers - depth - 1) * block_bytes;
}

void Reshard::Impl::plan_work()
{
    ReshardLimits limits;
    limits.block_bytes = block_bytes;
    limits.cache_bytes = plan_memory();
    limits.num_ranks = world.size();
    schedule = std::make_unique<ReshardSchedule>(*plan, limits, world.rank());
}

void Reshard::Impl::check_place()
{
    VALIDATE(!is_directory(options.out + "/ckpt"), UsageError,
             "'{}' is a run directory (its steps are in ckpt/, and one beside them would be read in their place). give another "
             "OUT, and start from it with --resume OUT",
             options.out);
    const std::string place = step_path(options.out, source.manifest.meta.trainer.step);
    VALIDATE(!path_exists(place), UsageError, "step {} is in '{}' already ('{}' exists). choose another directory",
             source.manifest.meta.trainer.step, options.out, place);
    require_writable(options.out, "choose another OUT");
    const std::int64_t free = free_bytes(existing_folder(options.out));
    VALIDATE(free >= summary.disk_bytes, UsageError, "cannot write {} to '{}' (free space {}). free some space or write elsewhere",
             format_storage(static_cast<double>(summary.disk_bytes)), options.out, format_storage(static_cast<double>(free)));
}

void Reshard::Impl::summarize()
{
    const Manifest& manifest = source.manifest;
    ReshardSummary& s = summary;
    s.source = source.path;
    s.source_layout = manifest.meta.layout_note;
    s.target_layout = layout_text(options.layout);
    s.step = manifest.meta.trainer.step;
    s.tensors = static_cast<std::int64_t>(step.names.size());
    s.tensor_states = static_cast<std::int64_t>(step.tensors.size());
    s.states = s.tensor_states / std::max<std::int64_t>(1, s.tensors);
    s.source_files = static_cast<std::int64_t>(source.shards.size());
    s.target_files = static_cast<std::int64_t>(step.files.size());
    const std::vector<std::int64_t> files = plan->target_file_bytes();
    s.data_bytes = plan->total_bytes();
    s.smallest_file = *std::min_element(files.begin(), files.end());
    s.largest_file = *std::max_element(files.begin(), files.end());
    s.balance = static_cast<double>(s.largest_file) * static_cast<double>(files.size()) / static_cast<double>(s.data_bytes);
    s.copies = static_cast<std::int64_t>(plan->copies().size());
    s.block_bytes = block_bytes;
    s.memory_limit = options.memory_limit;
    s.disk_bytes = static_cast<std::int64_t>(static_cast<double>(planned_bytes(step)) * 1.02);
    MessageWriter message;
    message.add(static_cast<std::int64_t>(schedule->units().size()));
    message.add(schedule->bytes_read());
    message.add(schedule->bytes_written());
    message.add(fixed_bytes + (num_buffers + depth + 1) * block_bytes + schedule->peak_cache_bytes());
    for (const std::string& part : all_gather_bytes(world, message.bytes()))
    {
        MessageReader reader(part);
        s.blocks += reader.get<std::int64_t>();
        s.read_bytes += reader.get<std::int64_t>();
        s.rank_bytes = std::max(s.rank_bytes, reader.get<std::int64_t>());
        s.memory = std::max(s.memory, reader.get<std::int64_t>());
    }
}

// Uses of the schedule and runs of boxes walk through the source in the same order (ReshardSchedule).
void Reshard::Impl::fill(const ReshardUnit& unit, ScheduledBlocks& blocks, std::size_t& use, char* buffer)
{
    const std::int64_t element_bytes = plan->tensors()[plan->targets()[unit.target].tensor].element_bytes;
    const std::int64_t block_elements = block_bytes / element_bytes;
    schedule->for_each_piece(unit, [&](const ReshardPiece& piece) {
        BoxRuns runs(plan->sources()[piece.source].box, piece.part);
        ElementRun run;
        std::int64_t block = -1;
        const char* data = nullptr;
        while (runs.next(run))
        {
            while (run.count > 0)
            {
                if (run.source / block_elements != block)
                {
                    block = run.source / block_elements;
                    ENSURE(schedule->uses()[use].source == piece.source && schedule->uses()[use].block == block);
                    data = blocks.at(use++);
                }
                const std::int64_t within = run.source % block_elements;
                const std::int64_t now = std::min(run.count, block_elements - within);
                std::memcpy(buffer + (piece.offset + run.target) * element_bytes, data + within * element_bytes,
                            static_cast<std::size_t>(now * element_bytes));
                run.source += now;
                run.target += now;
                run.count -= now;
            }
        }
    });
}

void Reshard::Impl::copy(StepWriter& writer, const std::function<void(const ReshardProgress&)>& progress, std::int64_t& read)
{
    ScheduledBlocks blocks(source.shards, source_places, *schedule, static_cast<std::size_t>(depth));
    ReshardProgress now;
    now.to_write = schedule->bytes_written();
    std::size_t use = 0;
    for (const ReshardUnit& unit : schedule->units())
    {
        AlignedBuffer buffer = writer.acquire();
        fill(unit, blocks, use, buffer.data());
        const auto place = target_places[unit.target];
        writer.write_block(place.first, place.second, unit.block, std::move(buffer));
        if (writer.has_failed()) { break; }
        now.written += unit.bytes;
        now.read = read = blocks.bytes_read();
        if (progress) { progress(now); }
    }
}

void Reshard::Impl::compare_digests(const std::vector<TensorRecord>& written) const
{
    std::map<std::string, std::uint64_t> wanted;
    for (const TensorRecord& record : source.manifest.tensors)
    {
        wanted[tensor_path(record.tensor.state, record.tensor.name)] = record.digest;
    }
    ENSURE(wanted.size() == written.size());
    for (const TensorRecord& record : written)
    {
        const std::string name = tensor_path(record.tensor.state, record.tensor.name);
        if (wanted.at(name) == record.digest) { continue; }
        FormatError error(fmt::format("digest of '{}' is {}, the source's is {} (the source is damaged, nothing was committed). "
                                      "see plimsoll-reshard verify {}",
                                      name, hex64(record.digest), hex64(wanted.at(name)), source.path));
        error.set_exit_code(ExitCode::fatal);
        throw error;
    }
}

Reshard::Reshard(ReshardOptions options, Communicator& world) : impl_(std::make_unique<Impl>(std::move(options), world))
{
    impl_->source = open_source(impl_->options.source, world);
    // The same on all ranks, but for the memory that they find.
    agree(world, [this] {
        impl_->plan_target();
        impl_->plan_copies();
        impl_->plan_work();
    });
    impl_->summarize();
    agree(world, [&] {
        if (world.rank() == 0) { impl_->check_place(); }
    });
}

Reshard::~Reshard() = default;

const ReshardSummary& Reshard::summary() const
{
    return impl_->summary;
}

ReshardResult Reshard::run(const std::function<void(const ReshardProgress&)>& progress)
{
    Impl& impl = *impl_;
    StepWriter::Settings settings;
    settings.root = impl.options.out;
    settings.uuid = derived_uuid(impl.source.manifest.uuid, impl.summary.target_layout);
    settings.num_buffers = impl.num_buffers;
    CheckpointMeta meta = impl.source.manifest.meta;
    meta.layout_note = impl.summary.target_layout;
    StepWriter writer(std::move(settings), std::move(meta), impl.step, impl.world);
    std::int64_t read = 0;
    try
    {
        impl.copy(writer, progress, read);
    }
    catch (FormatError& error)
    {
        error.set_exit_code(ExitCode::fatal);
        writer.fail(std::current_exception());
    }
    catch (const CommError&)
    {
        throw;
    }
    catch (const std::exception&)
    {
        writer.fail(std::current_exception());
    }
    const std::vector<TensorRecord> written = writer.seal();
    agree(impl.world, [&] { impl.compare_digests(written); });
    ReshardResult result;
    result.saved = writer.publish();
    result.digests = static_cast<std::int64_t>(written.size());
    MessageWriter message;
    message.add(read);
    for (const std::string& part : all_gather_bytes(impl.world, message.bytes()))
    {
        result.read_bytes += MessageReader(part).get<std::int64_t>();
    }
    return result;
}

}  // namespace plimsoll
