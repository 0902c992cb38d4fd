#include "layout/partial_sums.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "layout/collective_cost.hpp"
#include "layout/precision.hpp"

namespace plimsoll
{
namespace
{

struct GroupRange
{
    std::int64_t ranks;
    PartialRange range;
};

/// Neighbouring tensors with nothing between them are one range.
std::vector<GroupRange> ranges_of(const FlatLayout& flat, const ParallelLayout& layout)
{
    std::vector<GroupRange> ranges;
    for (std::size_t u = 0; u < flat.units.size(); ++u)
    {
        for (const FlatTensor& tensor : flat.units[u].tensors)
        {
            const std::int64_t ranks = partial_gradient_ranks(tensor.spec.shard, layout.tp);
            if (ranks == 1) { continue; }
            const std::int64_t end = tensor.offset + tensor.num_elements();
            const bool joins = !ranges.empty() && ranges.back().ranks == ranks && ranges.back().range.unit == u &&
                               ranges.back().range.end == tensor.offset;
            if (joins) { ranges.back().range.end = end; }
            else { ranges.push_back({ranks, {u, tensor.offset, end}}); }
        }
    }
    return ranges;
}

}  // namespace

std::int64_t PartialSum::num_elements() const
{
    std::int64_t total = 0;
    for (const PartialRange& range : ranges) { total += range.end - range.begin; }
    return total;
}

std::vector<PartialSum> partial_sums(const FlatLayout& flat, const ParallelLayout& layout, const MeshCoordinate& coordinate)
{
    const bool sharded = is_sharded(layout, StateKind::optimizer);
    const std::int64_t shard = sharded ? shard_index(layout, coordinate) : 0;
    std::vector<PartialSum> sums;
    std::map<std::int64_t, PartialSum> together;  // by size of group
    for (const GroupRange& part : ranges_of(flat, layout))
    {
        const FlatUnit& unit = flat.units[part.range.unit];
        const std::int64_t owned = sharded ? unit.shard_elements : unit.num_elements;
        PartialRange here = part.range;
        here.begin = std::max(here.begin, shard * owned);
        here.end = std::min(here.end, (shard + 1) * owned);
        if (here.begin >= here.end) { continue; }
        if ((here.end - here.begin) * sum_bytes(flat.element_bytes) >= collective_small_bytes)
        {
            sums.push_back({part.ranks, {here}});
            continue;
        }
        PartialSum& joined = together[part.ranks];
        joined.ranks = part.ranks;
        joined.ranges.push_back(here);
    }
    for (auto& entry : together) { sums.push_back(std::move(entry.second)); }
    return sums;
}

std::int64_t partial_sum_room(const std::vector<PartialSum>& sums)
{
    std::int64_t most = 0;
    for (const PartialSum& sum : sums)
    {
        if (sum.ranges.size() > 1) { most = std::max(most, sum.num_elements()); }
    }
    return most;
}

}  // namespace plimsoll
