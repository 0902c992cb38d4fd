#include "layout/flat_layout.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "layout/box_runs.hpp"

namespace plimsoll
{
namespace
{

constexpr std::int64_t alignment_bytes = 256;

std::int64_t round_up(std::int64_t value, std::int64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/// One tp rank's part of a dim: `extent` elements of storage, of which the first `real` are [offset, offset + real).
struct Slice
{
    std::int64_t extent = 0;
    std::int64_t offset = 0;
    std::int64_t real = 0;
};

Slice slice_of(const ShardSpec& shard, std::int64_t size, std::int64_t tp, std::int64_t tp_rank)
{
    Slice slice;
    if (shard.padded)
    {
        slice.extent = (size + tp - 1) / tp;
        slice.offset = std::min(size, tp_rank * slice.extent);
        slice.real = std::min(size, slice.offset + slice.extent) - slice.offset;
        return slice;
    }
    const std::int64_t num_granules = size / shard.granule;
    const bool shared_heads = shard.kv_heads > 0 && tp > shard.kv_heads;
    const std::int64_t parts = shared_heads ? shard.kv_heads : tp;
    EXPECT(size % shard.granule == 0 && num_granules % parts == 0 && tp % parts == 0);
    const std::int64_t part = tp_rank / (tp / parts);
    slice.extent = slice.real = num_granules / parts * shard.granule;
    slice.offset = part * slice.extent;
    return slice;
}

FlatTensor localize(const TensorSpec& spec, const ParallelLayout& layout, std::int64_t tp_rank)
{
    const std::int64_t tp = layout.tp;
    FlatTensor tensor;
    tensor.spec = spec;
    // What tp does not cut works on a rank's own tokens then.
    const bool on_own_tokens = layout.sequence_parallel && tp > 1 && spec.shard.tp == Placement::replicate;
    if (on_own_tokens) { tensor.spec.shard.tp = Placement::replicate_grad_partial; }
    tensor.local_shape = spec.shape;
    tensor.box.shape = spec.shape;
    tensor.box.offset.assign(spec.shape.size(), 0);
    if (spec.shard.tp == Placement::shard)
    {
        const std::size_t dim = static_cast<std::size_t>(spec.shard.dim);
        const Slice slice = slice_of(spec.shard, spec.shape[dim], tp, tp_rank);
        tensor.local_shape[dim] = slice.extent;
        tensor.box.offset[dim] = slice.offset;
        tensor.box.shape[dim] = slice.real;
    }
    return tensor;
}

bool is_part_of(const TensorSpec& spec, const StageChunk& chunk)
{
    switch (spec.unit)
    {
        case UnitKind::tied_embedding: return chunk.is_first() || chunk.is_last();
        case UnitKind::embedding: return chunk.is_first();
        case UnitKind::block: return spec.layer >= chunk.layers.first && spec.layer < chunk.layers.last;
        case UnitKind::head: return chunk.is_last();
    }
    throw InternalError(fmt::format("tensor '{}' has no unit", spec.name));
}

std::string unit_name(UnitKind kind, std::int64_t layer)
{
    switch (kind)
    {
        case UnitKind::tied_embedding: return "tied_embedding";
        case UnitKind::embedding: return "embedding";
        case UnitKind::block: return fmt::format("layers.{}", layer);
        case UnitKind::head: return "head";
    }
    throw InternalError("unit without a kind");
}

/// Orders the tensors of a unit and gives each its offset.
void place_tensors(FlatUnit& unit, std::int64_t alignment, std::int64_t shards)
{
    std::stable_sort(unit.tensors.begin(), unit.tensors.end(),
                     [](const FlatTensor& a, const FlatTensor& b) { return a.spec.decay < b.spec.decay; });
    std::int64_t end = 0;
    std::int64_t group_end[3] = {0, 0, 0};
    const std::string* open_group = nullptr;
    for (FlatTensor& tensor : unit.tensors)
    {
        const std::string& group = tensor.spec.fuse_group;
        const bool joins = !group.empty() && open_group != nullptr && *open_group == group;
        if (!joins) { end = round_up(end, alignment); }
        open_group = &group;
        tensor.offset = end;
        end += tensor.num_elements();
        group_end[static_cast<int>(tensor.spec.decay)] = round_up(end, alignment);
    }
    unit.decay_elements = group_end[0];
    unit.frozen_begin = std::max(group_end[0], group_end[1]);
    unit.num_elements = round_up(end, alignment * shards);
    unit.shard_elements = unit.num_elements / shards;
}

void append_boxes(const std::vector<std::int64_t>& shape, std::size_t dim, std::vector<std::int64_t>& prefix, std::int64_t begin,
                  std::int64_t end, std::vector<Box>& boxes);

/// Adds the box of whole rows [first, last) of `dim` below the fixed indices `prefix`.
void append_rows(const std::vector<std::int64_t>& shape, const std::vector<std::int64_t>& prefix, std::int64_t first,
                 std::int64_t last, std::vector<Box>& boxes)
{
    if (first >= last) { return; }
    Box box;
    box.offset = prefix;
    box.shape.assign(prefix.size(), 1);
    box.offset.push_back(first);
    box.shape.push_back(last - first);
    for (std::size_t rest = prefix.size() + 1; rest < shape.size(); ++rest)
    {
        box.offset.push_back(0);
        box.shape.push_back(shape[rest]);
    }
    boxes.push_back(std::move(box));
}

/// Adds the part [begin, end) of row `row`.
void append_part_row(const std::vector<std::int64_t>& shape, std::size_t dim, std::vector<std::int64_t>& prefix, std::int64_t row,
                     std::int64_t begin, std::int64_t end, std::vector<Box>& boxes)
{
    if (begin >= end) { return; }
    prefix.push_back(row);
    append_boxes(shape, dim + 1, prefix, begin, end, boxes);
    prefix.pop_back();
}

void append_boxes(const std::vector<std::int64_t>& shape, std::size_t dim, std::vector<std::int64_t>& prefix, std::int64_t begin,
                  std::int64_t end, std::vector<Box>& boxes)
{
    std::int64_t row_elements = 1;
    for (std::size_t rest = dim + 1; rest < shape.size(); ++rest) { row_elements *= shape[rest]; }
    const std::int64_t first_whole = (begin + row_elements - 1) / row_elements;
    const std::int64_t last_whole = end / row_elements;
    if (first_whole > last_whole)  // begins and ends inside one row
    {
        append_part_row(shape, dim, prefix, last_whole, begin % row_elements, end % row_elements, boxes);
        return;
    }
    if (begin % row_elements != 0)
    {
        append_part_row(shape, dim, prefix, first_whole - 1, begin % row_elements, row_elements, boxes);
    }
    append_rows(shape, prefix, first_whole, last_whole, boxes);
    append_part_row(shape, dim, prefix, last_whole, 0, end % row_elements, boxes);
}

}  // namespace

std::int64_t Box::num_elements() const
{
    return shape_elements(shape);
}

std::int64_t FlatTensor::num_elements() const
{
    return shape_elements(local_shape);
}

std::int64_t FlatLayout::num_elements() const
{
    std::int64_t total = 0;
    for (const FlatUnit& unit : units) { total += unit.num_elements; }
    return total;
}

const FlatTensor* FlatLayout::find(const std::string& name) const
{
    for (const FlatUnit& unit : units)
    {
        for (const FlatTensor& tensor : unit.tensors)
        {
            if (tensor.spec.name == name) { return &tensor; }
        }
    }
    return nullptr;
}

const FlatTensor& FlatLayout::tensor(const std::string& name) const
{
    const FlatTensor* found = find(name);
    if (found == nullptr) { throw InternalError(fmt::format("this rank holds no tensor '{}'", name)); }
    return *found;
}

const FlatUnit& FlatLayout::unit_of(const std::string& name) const
{
    const TensorSpec& spec = tensor(name).spec;
    return *std::find_if(units.begin(), units.end(), [&spec](const FlatUnit& unit)
                         { return unit.kind == spec.unit && unit.layer == spec.layer; });
}

FlatLayout make_flat_layout(const ModelSpec& model, const ParallelLayout& layout, const MeshCoordinate& coordinate,
                            std::int64_t element_bytes)
{
    EXPECT(element_bytes >= 1 && alignment_bytes % element_bytes == 0);
    const std::int64_t pp_rank = coordinate[MeshAxis::pp];
    const std::int64_t tp_rank = coordinate[MeshAxis::tp];
    EXPECT(tp_rank >= 0 && tp_rank < layout.tp);
    const std::vector<StageChunk> chunks = stage_chunks(model, layout, pp_rank);

    FlatLayout flat;
    flat.element_bytes = element_bytes;
    flat.shards = layout.shards();
    for (const TensorSpec& spec : canonical_tensors(model))
    {
        const auto chunk = std::find_if(chunks.begin(), chunks.end(), [&](const StageChunk& of) { return is_part_of(spec, of); });
        if (chunk == chunks.end()) { continue; }
        if (flat.units.empty() || flat.units.back().kind != spec.unit || flat.units.back().layer != spec.layer)
        {
            FlatUnit unit;
            unit.name = unit_name(spec.unit, spec.layer);
            unit.kind = spec.unit;
            unit.layer = spec.layer;
            unit.chunk = spec.unit == UnitKind::block ? chunk - chunks.begin() : 0;
            flat.units.push_back(std::move(unit));
        }
        flat.units.back().tensors.push_back(localize(spec, layout, tp_rank));
    }
    for (FlatUnit& unit : flat.units) { place_tensors(unit, alignment_bytes / element_bytes, flat.shards); }
    return flat;
}

bool is_sharded(const ParallelLayout& layout, StateKind state)
{
    return layout.zero_stage >= (state == StateKind::optimizer ? 1 : 3);
}

bool is_gathered(const FlatUnit& unit, const ParallelLayout& layout, std::int64_t element_bytes)
{
    return layout.shards_parameters() && unit.num_elements * element_bytes > layout.resident_bytes;
}

std::int64_t shard_index(const ParallelLayout& layout, const MeshCoordinate& coordinate)
{
    return coordinate[MeshAxis::dp] % layout.shards();
}

std::vector<OwnedBox> boxes_of(const FlatLayout& flat, const ParallelLayout& layout, const MeshCoordinate& coordinate,
                               const std::string& tensor, StateKind state)
{
    const FlatTensor* found = flat.find(tensor);
    if (found == nullptr) { return {}; }
    return boxes_of(flat.unit_of(tensor), *found, layout, coordinate, state);
}

std::vector<OwnedBox> boxes_of(const FlatUnit& unit, const FlatTensor& tensor, const ParallelLayout& layout,
                               const MeshCoordinate& coordinate, StateKind state)
{
    std::vector<OwnedBox> owned;
    // Vocabulary padding lies behind the real rows, so that these are one run of the local storage.
    const std::int64_t begin = tensor.offset;
    const std::int64_t end = begin + tensor.box.num_elements();
    if (begin == end) { return owned; }
    if (!is_sharded(layout, state))
    {
        OwnedBox whole;
        whole.local_offset = begin;
        whole.box = tensor.box;
        owned.push_back(std::move(whole));
        return owned;
    }
    const std::int64_t shard_elements = unit.shard_elements;
    const std::int64_t shard_begin = shard_index(layout, coordinate) * shard_elements;
    const std::int64_t from = std::max(begin, shard_begin);
    const std::int64_t to = std::min(end, shard_begin + shard_elements);
    std::int64_t local_offset = from - shard_begin;
    for (Box& box : boxes_of_flat_range(tensor.box.shape, from - begin, to - begin))
    {
        for (std::size_t dim = 0; dim < box.offset.size(); ++dim) { box.offset[dim] += tensor.box.offset[dim]; }
        OwnedBox part;
        part.local_offset = local_offset;
        local_offset += box.num_elements();
        part.box = std::move(box);
        owned.push_back(std::move(part));
    }
    return owned;
}

std::int64_t replica_index(const FlatLayout& flat, const ParallelLayout& layout, const MeshCoordinate& coordinate,
                           const std::string& tensor, StateKind state)
{
    const TensorSpec& spec = flat.tensor(tensor).spec;
    const std::int64_t tp_rank = coordinate[MeshAxis::tp];
    std::int64_t index = 0;
    if (spec.unit == UnitKind::tied_embedding && coordinate[MeshAxis::pp] != first_stage(layout)) { index = 1; }
    if (spec.shard.tp != Placement::shard) { index = index * layout.tp + tp_rank; }
    else if (spec.shard.kv_heads > 0 && layout.tp > spec.shard.kv_heads)
    {
        const std::int64_t sharers = layout.tp / spec.shard.kv_heads;
        index = index * sharers + tp_rank % sharers;
    }
    index = index * layout.cp + coordinate[MeshAxis::cp];
    if (!is_sharded(layout, state)) { return index * layout.dp + coordinate[MeshAxis::dp]; }
    return index * layout.replicas() + coordinate[MeshAxis::dp] / layout.shards();
}

std::vector<Box> boxes_of_flat_range(const std::vector<std::int64_t>& shape, std::int64_t begin, std::int64_t end)
{
    std::vector<Box> boxes;
    if (begin >= end) { return boxes; }
    EXPECT(!shape.empty() && begin >= 0 && end <= shape_elements(shape));
    std::vector<std::int64_t> prefix;
    append_boxes(shape, 0, prefix, begin, end, boxes);
    return boxes;
}

}  // namespace plimsoll
