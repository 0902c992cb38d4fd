#include "io/checkpoint_shard.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstring>
#include <limits>
#include <unordered_map>

#include "base/error.hpp"
#include "io/checkpoint_box.hpp"
#include "io/file.hpp"
#include "io/hdf5.hpp"
#include "io/outside_crc.hpp"

namespace plimsoll::checkpoint
{

namespace
{

constexpr std::size_t group_name_bytes = 32;
constexpr std::uint32_t no_group = std::numeric_limits<std::uint32_t>::max();

// Row of /optim/groups.
struct GroupRow
{
    char name[group_name_bytes] = {};
    double lr = 0, beta1 = 0, beta2 = 0, eps = 0, weight_decay = 0;
    std::int64_t step = 0;
};

H5TableType index_type()
{
    using Kind = H5Column::Kind;
    return {sizeof(IndexRow),
            {{"fqn_id", Kind::u32, offsetof(IndexRow, name_id), 1},
             {"box", Kind::u32, offsetof(IndexRow, box), 1},
             {"state", Kind::u8, offsetof(IndexRow, state), 1},
             {"dtype", Kind::u8, offsetof(IndexRow, dtype), 1},
             {"ndim", Kind::u8, offsetof(IndexRow, num_dims), 1},
             {"reserved", Kind::u8, offsetof(IndexRow, reserved), 1},
             {"crc32c", Kind::u32, offsetof(IndexRow, crc), 1},
             {"offset", Kind::u64, offsetof(IndexRow, offset), max_dims},
             {"shape", Kind::u64, offsetof(IndexRow, shape), max_dims},
             {"file_offset", Kind::u64, offsetof(IndexRow, file_offset), 1},
             {"nbytes", Kind::u64, offsetof(IndexRow, num_bytes), 1},
             {"digest", Kind::u64, offsetof(IndexRow, digest), 1},
             {"first_block", Kind::u64, offsetof(IndexRow, first_block), 1}}};
}

H5TableType group_type()
{
    using Kind = H5Column::Kind;
    return {sizeof(GroupRow),
            {{"name", Kind::text, offsetof(GroupRow, name), group_name_bytes},
             {"lr", Kind::f64, offsetof(GroupRow, lr), 1},
             {"beta1", Kind::f64, offsetof(GroupRow, beta1), 1},
             {"beta2", Kind::f64, offsetof(GroupRow, beta2), 1},
             {"eps", Kind::f64, offsetof(GroupRow, eps), 1},
             {"weight_decay", Kind::f64, offsetof(GroupRow, weight_decay), 1},
             {"step", Kind::i64, offsetof(GroupRow, step), 1}}};
}

std::unordered_map<std::string, std::uint32_t> ids_of(const std::vector<std::string>& names)
{
    std::unordered_map<std::string, std::uint32_t> ids;
    for (std::size_t k = 0; k < names.size(); ++k) { ids.emplace(names[k], static_cast<std::uint32_t>(k)); }
    return ids;
}

constexpr const char* trainer_plan = "/trainer/plan";
constexpr const char* trainer_stages = "/trainer/stages";

std::vector<DataStage> read_stages(const H5File& file)
{
    std::vector<DataStage> stages;
    if (!file.exists(trainer_stages)) { return stages; }
    for (const std::string& line : file.read_strings(trainer_stages))
    {
        const std::size_t space = line.find(' ');
        DataStage stage;
        const auto end = std::from_chars(line.data(), line.data() + std::min(space, line.size()), stage.base);
        VALIDATE(space != std::string::npos && end.ec == std::errc() && end.ptr == line.data() + space && stage.base >= 0,
                 FormatError, "{}: '{}' in {} is no stage (base and plan hash)", file.path(), line, trainer_stages);
        stage.plan_hash = line.substr(space + 1);
        stages.push_back(std::move(stage));
    }
    return stages;
}

void write_trainer(H5File& file, const TrainerState& trainer, const std::vector<std::string>& names)
{
    H5Group group = file.create_group("/trainer");
    group.set_attribute("step", trainer.step);
    group.set_attribute("consumed_samples", trainer.consumed_samples);
    group.set_attribute("consumed_tokens", trainer.consumed_tokens);
    group.set_attribute("seed", trainer.seed);
    group.set_attribute("data_order", trainer.data_order);
    group.set_attribute("plan_hash", trainer.plan_hash);
    group.set_attribute("tokenizer", trainer.tokenizer);
    if (!trainer.plan.empty()) { file.create_strings(trainer_plan, trainer.plan); }
    std::vector<std::string> stages;
    for (const DataStage& stage : trainer.stages) { stages.push_back(fmt::format("{} {}", stage.base, stage.plan_hash)); }
    if (!stages.empty()) { file.create_strings(trainer_stages, stages); }
    const auto ids = ids_of(names);
    std::vector<GroupRow> rows;
    std::vector<std::uint32_t> group_of(names.size(), no_group);
    for (const OptimizerGroup& settings : trainer.groups)
    {
        EXPECT(settings.name.size() < group_name_bytes);
        for (const std::string& tensor : settings.tensors)
        {
            const auto id = ids.find(tensor);
            EXPECT(id != ids.end() && group_of[id->second] == no_group);
            group_of[id->second] = static_cast<std::uint32_t>(rows.size());
        }
        GroupRow row;
        settings.name.copy(row.name, group_name_bytes - 1);
        row.lr = settings.lr;
        row.beta1 = settings.beta1;
        row.beta2 = settings.beta2;
        row.eps = settings.eps;
        row.weight_decay = settings.weight_decay;
        row.step = settings.step;
        rows.push_back(row);
    }
    file.create_table("/optim/groups", group_type(), static_cast<std::int64_t>(rows.size()));
    file.write_table("/optim/groups", group_type(), rows.data());
    file.create_dataset("/optim/group_of", Dtype::u32, {static_cast<std::int64_t>(group_of.size())}).write(group_of.data());
}

IndexRow make_row(const CheckpointBox& planned, std::uint32_t name_id, std::uint32_t number, std::uint64_t first_block)
{
    const CheckpointTensor& tensor = planned.tensor;
    EXPECT(tensor.shape.size() <= max_dims && box_inside(planned.box, tensor.shape));
    IndexRow row;
    row.name_id = name_id;
    row.box = number;
    row.state = static_cast<std::uint8_t>(tensor.state);
    row.dtype = static_cast<std::uint8_t>(tensor.dtype);
    row.num_dims = static_cast<std::uint8_t>(tensor.shape.size());
    for (std::size_t d = 0; d < tensor.shape.size(); ++d)
    {
        row.offset[d] = static_cast<std::uint64_t>(planned.box.offset[d]);
        row.shape[d] = static_cast<std::uint64_t>(planned.box.shape[d]);
    }
    row.num_bytes = static_cast<std::uint64_t>(tensor_elements(planned.box.shape) * dtype_bytes(tensor.dtype));
    row.first_block = first_block;
    return row;
}

std::vector<std::uint64_t> unsigned_list(const std::vector<std::int64_t>& values)
{
    return std::vector<std::uint64_t>(values.begin(), values.end());
}

void create_box(H5File& file, const ShardPlan& plan, std::size_t number, IndexRow& row)
{
    if (row.num_bytes == 0) { return; }
    const CheckpointBox& planned = plan.boxes[number];
    H5Dataset dataset = file.create_dataset(
        fmt::format("/{}/{}", tensor_path(planned.tensor.state, planned.tensor.name), row.box), planned.tensor.dtype,
        planned.box.shape);
    dataset.set_attribute("global_shape", unsigned_list(planned.tensor.shape));
    dataset.set_attribute("offset", unsigned_list(planned.box.offset));
    dataset.set_attribute("dtype", std::string(dtype_name(planned.tensor.dtype)));
    dataset.set_attribute("owner_rank", std::int64_t{plan.owners.empty() ? 0 : plan.owners[number]});
    dataset.set_attribute("fqn_id", std::int64_t{row.name_id});
    row.file_offset = static_cast<std::uint64_t>(dataset.file_offset());
}

std::vector<IndexRow> plan_rows(const ShardPlan& plan, std::int64_t& total_blocks)
{
    const auto ids = ids_of(plan.names);
    std::unordered_map<std::string, std::uint32_t> boxes_so_far;
    std::vector<IndexRow> rows;
    total_blocks = 0;
    for (const CheckpointBox& planned : plan.boxes)
    {
        const auto id = ids.find(planned.tensor.name);
        EXPECT(id != ids.end());
        std::uint32_t& number = boxes_so_far[tensor_path(planned.tensor.state, planned.tensor.name)];
        rows.push_back(make_row(planned, id->second, number++, static_cast<std::uint64_t>(total_blocks)));
        total_blocks += num_blocks(static_cast<std::int64_t>(rows.back().num_bytes));
    }
    return rows;
}

}  // namespace

std::int64_t planned_bytes(const ShardPlan& plan)
{
    // Header, attributes and link of a dataset take about 1 KiB; a large one is moved up to the next 4 KiB.
    constexpr std::int64_t per_box = 2048 + static_cast<std::int64_t>(sizeof(IndexRow));
    constexpr std::int64_t per_file = 128 * 1024;
    std::int64_t bytes = per_file;
    for (const std::string& name : plan.names) { bytes += static_cast<std::int64_t>(name.size()) + 64; }
    for (const CheckpointBox& planned : plan.boxes)
    {
        const std::int64_t data = tensor_elements(planned.box.shape) * dtype_bytes(planned.tensor.dtype);
        bytes += data + per_box + 4 * num_blocks(data) + (data >= 64 * 1024 ? File::direct_alignment : 0);
    }
    return bytes;
}

ShardLayout plan_shard(const ShardPlan& plan)
{
    ShardLayout layout;
    layout.rows = plan_rows(plan, layout.total_blocks);
    return layout;
}

ShardLayout create_shard(const std::string& path, const ShardPlan& plan)
{
    ShardLayout layout = plan_shard(plan);
    layout.path = path;
    H5File file = H5File::create(path);
    H5Group root = file.root();
    root.set_attribute("format", format_name);
    root.set_attribute("format_version", std::vector<std::uint64_t>{version_major, version_minor});
    root.set_attribute("writer", plan.writer);
    root.set_attribute("step", plan.step);
    root.set_attribute("uuid", plan.uuid);
    root.set_attribute("shard", std::vector<std::uint64_t>{static_cast<std::uint64_t>(plan.shard),
                                                           static_cast<std::uint64_t>(plan.num_shards)});
    root.set_attribute("complete", std::uint8_t{0});
    file.create_strings("/names", plan.names);
    if (plan.trainer != nullptr) { write_trainer(file, *plan.trainer, plan.names); }
    layout.index_offset =
        file.create_table("/index", index_type(), static_cast<std::int64_t>(layout.rows.size())).file_offset();
    layout.blocks_offset = file.create_dataset("/crc", Dtype::u32, {layout.total_blocks}).file_offset();
    for (std::size_t k = 0; k < layout.rows.size(); ++k) { create_box(file, plan, k, layout.rows[k]); }
    file.close();
    File reserved(path, File::Mode::read_write);
    reserved.reserve(reserved.size());
    return layout;
}

std::uint64_t box_digest(const BoxSums& sums)
{
    std::uint64_t digest = 0;
    for (const BlockSum& sum : sums) { digest += sum.digest; }
    return digest;
}

BoxSums write_box(WriteQueue& queue, DirectFile& file, const IndexRow& row, const CheckpointBox& box, const void* data)
{
    // Copy, CRC and digest go over pieces that stay in the cache; the queue writes whole blocks meanwhile.
    constexpr std::int64_t piece_bytes = 256 * 1024;
    const std::int64_t element_bytes = dtype_bytes(box.tensor.dtype);
    BoxDigest digest(box.box, box.tensor.shape, element_bytes, digest_salt(box.tensor.state, box.tensor.name));
    BoxSums sums;
    const auto* source = static_cast<const char*>(data);
    const auto total = static_cast<std::int64_t>(row.num_bytes);
    for (std::int64_t begin = 0; begin < total; begin += block_bytes)
    {
        const std::int64_t bytes = std::min(block_bytes, total - begin);
        const std::uint64_t digest_before = digest.value();
        AlignedBuffer buffer = queue.acquire();
        BlockSum sum;
        for (std::int64_t at = 0; at < bytes; at += piece_bytes)
        {
            const std::int64_t now = std::min(piece_bytes, bytes - at);
            std::memcpy(buffer.data() + at, source + begin + at, static_cast<std::size_t>(now));
            sum.crc = crc32c(buffer.data() + at, now, sum.crc);
            digest.add(buffer.data() + at, now / element_bytes);
        }
        sum.digest = digest.value() - digest_before;
        crash_point("checkpoint.block");
        queue.submit(file, std::move(buffer), bytes, static_cast<std::int64_t>(row.file_offset) + begin);
        sums.push_back(sum);
    }
    return sums;
}

BlockSum write_block(WriteQueue& queue, DirectFile& file, const IndexRow& row, const CheckpointBox& box, std::int64_t block,
                     AlignedBuffer buffer)
{
    const std::int64_t element_bytes = dtype_bytes(box.tensor.dtype);
    const std::int64_t begin = block * block_bytes;
    const std::int64_t bytes = std::min(block_bytes, static_cast<std::int64_t>(row.num_bytes) - begin);
    EXPECT(bytes > 0 && buffer.size() >= bytes);
    BlockSum sum;
    sum.crc = crc32c(buffer.data(), bytes);
    sum.digest = box_range_digest(box.box, box.tensor.shape, element_bytes, digest_salt(box.tensor.state, box.tensor.name),
                                  begin / element_bytes, bytes / element_bytes, buffer.data());
    crash_point("checkpoint.block");
    queue.submit(file, std::move(buffer), bytes, static_cast<std::int64_t>(row.file_offset) + begin);
    return sum;
}

FileRecord finish_shard(ShardLayout& layout, const std::vector<BoxSums>& sums)
{
    EXPECT(sums.size() == layout.rows.size());
    FileRecord record;
    std::vector<std::uint32_t> blocks;
    for (std::size_t k = 0; k < sums.size(); ++k)
    {
        IndexRow& row = layout.rows[k];
        EXPECT(blocks.size() == row.first_block);
        row.crc = 0;
        for (std::size_t block = 0; block < sums[k].size(); ++block)
        {
            const std::int64_t begin = static_cast<std::int64_t>(block) * block_bytes;
            const std::int64_t bytes = std::min(block_bytes, static_cast<std::int64_t>(row.num_bytes) - begin);
            row.crc = crc32c_combine(row.crc, sums[k][block].crc, bytes);
            blocks.push_back(sums[k][block].crc);
        }
        row.digest = box_digest(sums[k]);
        record.data_bytes += static_cast<std::int64_t>(row.num_bytes);
    }
    EXPECT(static_cast<std::int64_t>(blocks.size()) == layout.total_blocks);
    const auto index_bytes = static_cast<std::int64_t>(layout.rows.size() * sizeof(IndexRow));
    const auto blocks_bytes = static_cast<std::int64_t>(blocks.size() * sizeof(std::uint32_t));
    File file(layout.path, File::Mode::read_write);
    crash_point("checkpoint.tables");
    if (index_bytes > 0) { file.write_at(layout.rows.data(), index_bytes, layout.index_offset); }
    if (blocks_bytes > 0) { file.write_at(blocks.data(), blocks_bytes, layout.blocks_offset); }
    crash_point("checkpoint.data_sync");
    file.sync();
    crash_point("checkpoint.complete");
    H5File hdf5 = H5File::open(layout.path, H5File::Access::read_write);
    hdf5.root().set_attribute("complete", std::uint8_t{1});
    hdf5.close();
    crash_point("checkpoint.file_sync");
    file.sync();
    record.name = base_name(layout.path);
    record.bytes = file.size();
    record.boxes = static_cast<std::int64_t>(layout.rows.size());
    record.index_crc = crc32c(layout.rows.data(), index_bytes);
    record.blocks_crc = crc32c(blocks.data(), blocks_bytes);
    record.skeleton_crc = skeleton_crc(layout.path, layout.rows);
    return record;
}

std::uint32_t skeleton_crc(const std::string& path, const std::vector<IndexRow>& rows)
{
    std::vector<std::pair<std::int64_t, std::int64_t>> held;
    for (const IndexRow& row : rows)
    {
        const auto begin = static_cast<std::int64_t>(row.file_offset);
        if (row.num_bytes > 0) { held.emplace_back(begin, begin + static_cast<std::int64_t>(row.num_bytes)); }
    }
    return crc32c_outside(path, std::move(held));
}

std::string ShardContent::dataset_text(const IndexRow& row) const
{
    return fmt::format("{}: {}/{}", path, tensor_path(static_cast<CheckpointState>(row.state), name(row)), row.box);
}

namespace
{

void check_root(const H5Group& root, const std::string& path, const Manifest& manifest, std::size_t file)
{
    const std::string format = root.attribute_string("format");
    VALIDATE(format == format_name, FormatError, "{}: format is '{}', not '{}'", path, format, format_name);
    const std::vector<std::uint64_t> version = root.attribute_u64s("format_version");
    VALIDATE(version.size() == 2 && version[0] == version_major, FormatError,
             "{}: format version {} is not readable (this version reads {}.x)", path, fmt::join(version, "."), version_major);
    const std::string uuid = root.attribute_string("uuid");
    VALIDATE(uuid == manifest.uuid, FormatError,
             "{}: belongs to another checkpoint (uuid {}, manifest says {}). were two directories mixed?", path, uuid,
             manifest.uuid);
    const std::int64_t step = root.attribute_i64("step");
    VALIDATE(step == manifest.meta.trainer.step, FormatError, "{}: is of step {}, manifest says {}", path, step,
             manifest.meta.trainer.step);
    VALIDATE(root.attribute_u64("complete") == 1, FormatError, "{}: is not complete (interrupted save?)", path);
    const std::vector<std::uint64_t> shard = root.attribute_u64s("shard");
    VALIDATE(shard.size() == 2 && shard[0] == file && shard[1] == manifest.files.size(), FormatError,
             "{}: is shard {}, manifest says {} of {}", path, fmt::join(shard, " of "), file, manifest.files.size());
}

void check_row(const ShardContent& shard, const IndexRow& row, std::size_t number)
{
    const auto inside = [](std::uint64_t begin, std::uint64_t length, std::uint64_t end) {
        return begin <= end && length <= end - begin;
    };
    VALIDATE(row.name_id < shard.names.size() && row.num_dims <= max_dims &&
                 row.state <= static_cast<std::uint8_t>(CheckpointState::exp_avg_sq) &&
                 row.dtype <= static_cast<std::uint8_t>(Dtype::u64) &&
                 inside(row.file_offset, row.num_bytes, static_cast<std::uint64_t>(shard.record.bytes)) &&
                 inside(row.first_block, static_cast<std::uint64_t>(num_blocks(static_cast<std::int64_t>(row.num_bytes))),
                        shard.blocks.size()),
             FormatError, "{}: row {} of /index is out of range", shard.path, number);
    std::int64_t bytes = dtype_bytes(static_cast<Dtype>(row.dtype));
    for (const std::int64_t extent : row_box(row).shape)
    {
        VALIDATE(extent >= 0 && !__builtin_mul_overflow(bytes, extent, &bytes), FormatError,
                 "{}: row {} of /index has an impossible shape", shard.path, number);
    }
    VALIDATE(bytes == static_cast<std::int64_t>(row.num_bytes), FormatError,
             "{}: row {} of /index says {} bytes, its shape needs {}", shard.path, number, row.num_bytes, bytes);
}

}  // namespace

ShardContent open_shard(const std::string& step_dir, const Manifest& manifest, std::size_t file)
{
    ShardContent shard;
    shard.record = manifest.files[file];
    shard.path = step_dir + "/" + shard.record.name;
    const H5File hdf5 = H5File::open(shard.path, H5File::Access::read);
    check_root(hdf5.root(), shard.path, manifest, file);
    const std::int64_t num_rows = hdf5.dataset("/index").num_elements();
    VALIDATE(num_rows == shard.record.boxes, FormatError, "{}: /index has {} rows, manifest says {} (interrupted save?)",
             shard.path, num_rows, shard.record.boxes);
    shard.rows.resize(static_cast<std::size_t>(num_rows));
    hdf5.read_table("/index", index_type(), shard.rows.data());
    VALIDATE(crc32c(shard.rows.data(), static_cast<std::int64_t>(shard.rows.size() * sizeof(IndexRow))) ==
                 shard.record.index_crc,
             FormatError, "{}: /index is damaged (crc differs from the manifest)", shard.path);
    const H5Dataset blocks = hdf5.dataset("/crc");
    VALIDATE(blocks.dtype() == Dtype::u32, FormatError, "{}: /crc is not a list of u32", shard.path);
    shard.blocks.resize(static_cast<std::size_t>(blocks.num_elements()));
    blocks.read(shard.blocks.data());
    VALIDATE(crc32c(shard.blocks.data(), static_cast<std::int64_t>(shard.blocks.size() * sizeof(std::uint32_t))) ==
                 shard.record.blocks_crc,
             FormatError, "{}: /crc is damaged (crc differs from the manifest)", shard.path);
    shard.names = hdf5.read_strings("/names");
    for (std::size_t k = 0; k < shard.rows.size(); ++k) { check_row(shard, shard.rows[k], k); }
    return shard;
}

TrainerState read_trainer(const std::string& step_dir, const Manifest& manifest)
{
    EXPECT(!manifest.files.empty());
    const H5File file = H5File::open(step_dir + "/" + manifest.files[0].name, H5File::Access::read);
    const H5Group group = file.group("/trainer");
    TrainerState trainer;
    trainer.step = group.attribute_i64("step");
    trainer.consumed_samples = group.attribute_i64("consumed_samples");
    trainer.consumed_tokens = group.attribute_i64("consumed_tokens");
    trainer.seed = group.attribute_u64("seed");
    trainer.data_order = group.attribute_string("data_order");
    trainer.plan_hash = group.attribute_string("plan_hash");
    trainer.tokenizer = group.attribute_string("tokenizer");
    if (file.exists(trainer_plan)) { trainer.plan = file.read_strings(trainer_plan); }
    trainer.stages = read_stages(file);
    const std::vector<std::string> names = file.read_strings("/names");
    std::vector<GroupRow> rows(static_cast<std::size_t>(file.dataset("/optim/groups").num_elements()));
    file.read_table("/optim/groups", group_type(), rows.data());
    const H5Dataset membership = file.dataset("/optim/group_of");
    VALIDATE(membership.dtype() == Dtype::u32 && membership.num_elements() == static_cast<std::int64_t>(names.size()),
             FormatError, "{}: has {} rows for {} names", membership.where(), membership.num_elements(), names.size());
    std::vector<std::uint32_t> group_of(names.size());
    membership.read(group_of.data());
    for (const GroupRow& row : rows)
    {
        OptimizerGroup settings;
        settings.name = std::string(row.name, ::strnlen(row.name, group_name_bytes));
        settings.lr = row.lr;
        settings.beta1 = row.beta1;
        settings.beta2 = row.beta2;
        settings.eps = row.eps;
        settings.weight_decay = row.weight_decay;
        settings.step = row.step;
        trainer.groups.push_back(settings);
    }
    for (std::size_t k = 0; k < names.size(); ++k)
    {
        if (group_of[k] == no_group) { continue; }
        VALIDATE(group_of[k] < rows.size(), FormatError, "{}: tensor '{}' is in group {} of {}", membership.where(), names[k],
                 group_of[k], rows.size());
        trainer.groups[group_of[k]].tensors.push_back(names[k]);
    }
    return trainer;
}

std::string dataset_fault(const ShardContent& shard)
{
    const H5File file = H5File::open(shard.path, H5File::Access::read);
    for (const IndexRow& row : shard.rows)
    {
        if (row.num_bytes == 0) { continue; }
        const H5Dataset dataset = file.dataset(
            fmt::format("/{}/{}", tensor_path(static_cast<CheckpointState>(row.state), shard.name(row)), row.box));
        const Box box = row_box(row);
        const bool same = dataset.file_offset() == static_cast<std::int64_t>(row.file_offset) &&
                          dataset.storage_bytes() == static_cast<std::int64_t>(row.num_bytes) &&
                          dataset.dtype() == static_cast<Dtype>(row.dtype) && dataset.dims() == unsigned_list(box.shape) &&
                          dataset.attribute_u64s("offset") == unsigned_list(box.offset);
        if (!same) { return fmt::format("{}: is not what /index says of it", shard.dataset_text(row)); }
    }
    return "";
}

}  // namespace plimsoll::checkpoint
