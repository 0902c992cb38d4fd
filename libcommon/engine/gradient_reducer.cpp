#include "engine/gradient_reducer.hpp"

#include <algorithm>
#include <cstring>

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
    : flat_(flat), layout_(layout), groups_(groups), partial_sums_(partial_sums(flat, layout, groups.coordinate))
{
    EXPECT(flat.shards == groups.dp->size());
    for (const FlatUnit& unit : flat_.units) { find_norm_ranges(unit); }
    sums_.resize(flat_.units.size());
    gathers_.resize(flat_.units.size());
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

void GradientReducer::finish(const std::vector<BufferView>& mine, BufferView room, Stream& stream)
{
    EXPECT(mine.size() == flat_.units.size() && room.count == room_elements());
    for (std::size_t u = 0; u < mine.size(); ++u)
    {
        const UnitRange range = owned(static_cast<std::int64_t>(u));
        EXPECT(mine[u].count == range.end - range.begin);
        groups_.replicas->all_reduce(mine[u], ReduceOp::sum, stream).wait(stream);
    }
    for (const PartialSum& sum : partial_sums_) { sum_partial(sum, mine, room, stream); }
    for (std::size_t u = 0; u < mine.size(); ++u)
    {
        if (flat_.units[u].kind != UnitKind::tied_embedding) { continue; }
        groups_.embedding->all_reduce(mine[u], ReduceOp::sum, stream).wait(stream);
    }
}

void GradientReducer::sum_partial(const PartialSum& sum, const std::vector<BufferView>& mine, BufferView room, Stream& stream)
{
    Communicator& group = sum.ranks == layout_.tp ? *groups_.tp : *groups_.kv;
    ENSURE(group.size() == sum.ranks);
    const auto part = [&](const PartialRange& range)
    {
        return mine[range.unit].slice(range.begin - owned(static_cast<std::int64_t>(range.unit)).begin, range.end - range.begin);
    };
    if (sum.ranges.size() == 1)
    {
        group.all_reduce(part(sum.ranges.front()), ReduceOp::sum, stream).wait(stream);
        return;
    }
    std::int64_t at = 0;
    for (const PartialRange& range : sum.ranges)
    {
        const BufferView from = part(range);
        std::memcpy(room.slice(at, from.count).data, from.data, static_cast<std::size_t>(from.bytes()));
        at += from.count;
    }
    group.all_reduce(room.slice(0, at), ReduceOp::sum, stream).wait(stream);
    at = 0;
    for (const PartialRange& range : sum.ranges)
    {
        const BufferView to = part(range);
        std::memcpy(to.data, room.slice(at, to.count).data, static_cast<std::size_t>(to.bytes()));
        at += to.count;
    }
}

void GradientReducer::start_gather(std::int64_t unit, BufferView mine, BufferView params, Stream& stream)
{
    gathers_[static_cast<std::size_t>(unit)] = groups_.dp->all_gather(mine, params, stream);
}

void GradientReducer::wait_gather(std::int64_t unit, Stream& stream) { gathers_[static_cast<std::size_t>(unit)].wait(stream); }

}  // namespace plimsoll
