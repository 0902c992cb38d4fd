#include "engine/gradient_reducer.hpp"

#include <algorithm>

#include "base/error.hpp"

namespace plimsoll
{
namespace
{

/// Adds a range, joined to the last one when nothing but alignment lies between: gaps are zero.
void append(std::vector<UnitRange>& ranges, UnitRange next, bool joins)
{
    if (next.begin >= next.end) { return; }
    if (joins && !ranges.empty()) { ranges.back().end = next.end; }
    else { ranges.push_back(next); }
}

}  // namespace

GradientReducer::GradientReducer(const FlatLayout& flat, const ParallelLayout& layout, RankGroups& groups)
    : flat_(flat), layout_(layout), groups_(groups)
{
    EXPECT(flat.shards == groups.dp->size());
    for (const FlatUnit& unit : flat_.units)
    {
        find_partials(unit);
        find_norm_ranges(unit);
    }
    sums_.resize(flat_.units.size());
    gathers_.resize(flat_.units.size());
}

void GradientReducer::find_partials(const FlatUnit& unit)
{
    std::vector<Partial> partials;
    for (const FlatTensor& tensor : unit.tensors)
    {
        const std::int64_t ranks = partial_gradient_ranks(tensor.spec.shard, layout_.tp);
        if (ranks == 1) { continue; }
        Communicator* group = ranks == layout_.tp ? groups_.tp.get() : groups_.kv.get();
        ENSURE(group->size() == ranks);
        const UnitRange range{tensor.offset, tensor.offset + tensor.num_elements()};
        if (!partials.empty() && partials.back().group == group && partials.back().range.end == range.begin)
        {
            partials.back().range.end = range.end;
        }
        else { partials.push_back({range, group}); }
    }
    partials_.push_back(std::move(partials));
}

void GradientReducer::find_norm_ranges(const FlatUnit& unit)
{
    // Whoever owns an element under zero 1 counts it, at every stage.
    ParallelLayout as_sharded = layout_;
    as_sharded.zero_stage = 1;
    const std::int64_t begin = groups_.dp->rank() * unit.shard_elements;
    const std::int64_t end = begin + unit.shard_elements;
    std::vector<UnitRange> ranges;
    bool before_counts = false;
    for (const FlatTensor& tensor : unit.tensors)
    {
        const bool counts = replica_index(flat_, as_sharded, groups_.coordinate, tensor.spec.name, StateKind::optimizer) == 0;
        if (counts)
        {
            append(ranges, {std::max(begin, tensor.offset), std::min(end, tensor.offset + tensor.num_elements())}, before_counts);
        }
        before_counts = counts;
    }
    norm_ranges_.push_back(std::move(ranges));
}

UnitRange GradientReducer::owned(std::int64_t unit) const
{
    const FlatUnit& of = unit_at(unit);
    if (!sharded()) { return {0, of.num_elements}; }
    const std::int64_t begin = groups_.dp->rank() * of.shard_elements;
    return {begin, begin + of.shard_elements};
}

void GradientReducer::start(std::int64_t unit, BufferView grads, Stream& stream)
{
    EXPECT(grads.count == unit_at(unit).num_elements);
    const UnitRange mine = owned(unit);
    sums_[static_cast<std::size_t>(unit)] =
        sharded() ? groups_.dp->reduce_scatter(grads, grads.slice(mine.begin, mine.end - mine.begin), stream)
                  : groups_.dp->all_reduce(grads, ReduceOp::sum, stream);
}

void GradientReducer::wait(std::int64_t unit, Stream& stream) { sums_[static_cast<std::size_t>(unit)].wait(stream); }

void GradientReducer::finish(std::int64_t unit, BufferView mine, Stream& stream)
{
    const UnitRange range = owned(unit);
    EXPECT(mine.count == range.end - range.begin);
    groups_.replicas->all_reduce(mine, ReduceOp::sum, stream).wait(stream);
    for (const Partial& partial : partials_[static_cast<std::size_t>(unit)])
    {
        const std::int64_t begin = std::max(range.begin, partial.range.begin), end = std::min(range.end, partial.range.end);
        if (begin >= end) { continue; }
        partial.group->all_reduce(mine.slice(begin - range.begin, end - begin), ReduceOp::sum, stream).wait(stream);
    }
    if (unit_at(unit).kind == UnitKind::tied_embedding)
    {
        groups_.embedding->all_reduce(mine, ReduceOp::sum, stream).wait(stream);
    }
}

void GradientReducer::start_gather(std::int64_t unit, BufferView mine, BufferView params, Stream& stream)
{
    gathers_[static_cast<std::size_t>(unit)] = groups_.dp->all_gather(mine, params, stream);
}

void GradientReducer::wait_gather(std::int64_t unit, Stream& stream) { gathers_[static_cast<std::size_t>(unit)].wait(stream); }

}  // namespace plimsoll
