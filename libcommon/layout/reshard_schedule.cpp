#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <unordered_map>

#include "base/error.hpp"
#include "layout/reshard_plan.hpp"

namespace plimsoll
{
namespace
{

constexpr std::size_t never = std::numeric_limits<std::size_t>::max();

/// Elements from one index of a dim to the next.
std::vector<std::int64_t> strides_of(const std::vector<std::int64_t>& shape)
{
    std::vector<std::int64_t> strides(shape.size(), 1);
    for (std::size_t d = shape.size(); d-- > 1;) { strides[d - 1] = strides[d] * shape[d]; }
    return strides;
}

/// What a buffer for so many bytes takes: whole pages, huge ones from the size of one on.
std::int64_t held_bytes(std::int64_t bytes)
{
    constexpr std::int64_t page = 4096;
    constexpr std::int64_t huge_page = std::int64_t{2} << 20;
    const std::int64_t unit = bytes >= huge_page ? huge_page : page;
    return (bytes + unit - 1) / unit * unit;
}

/// A part of a unit and its place in it.
struct UnitPart
{
    Box box;
    std::int64_t offset = 0;
};

std::vector<UnitPart> parts_of(const Box& target, std::int64_t begin, std::int64_t end)
{
    std::vector<UnitPart> parts;
    if (target.shape.empty())
    {
        parts.emplace_back();
        return parts;
    }
    std::int64_t offset = 0;
    for (Box& box : boxes_of_flat_range(target.shape, begin, end))
    {
        for (std::size_t d = 0; d < box.offset.size(); ++d) { box.offset[d] += target.offset[d]; }
        UnitPart part;
        part.offset = offset;
        offset += box.num_elements();
        part.box = std::move(box);
        parts.push_back(std::move(part));
    }
    return parts;
}

/// Number of the target's element `index` (C order of the box) in the whole tensor.
std::int64_t global_index(const Box& target, const std::vector<std::int64_t>& shape, std::int64_t index)
{
    std::int64_t result = 0;
    std::int64_t stride = 1;
    for (std::size_t d = shape.size(); d-- > 0;)
    {
        result += (target.offset[d] + index % target.shape[d]) * stride;
        index /= target.shape[d];
        stride *= shape[d];
    }
    return result;
}

}  // namespace

void for_each_source_block(const Box& source, const Box& common, std::int64_t element_bytes, std::int64_t block_bytes,
                           const std::function<void(std::int64_t)>& visit)
{
    const std::vector<std::int64_t> strides = strides_of(source.shape);
    const std::size_t num_dims = strides.size();
    const std::int64_t block_elements = block_bytes / element_bytes;
    // From dim `inner` on, rows follow each other within a block's length: all blocks from first to last are touched.
    std::size_t inner = 0;
    while (inner + 1 < num_dims && strides[inner] > block_elements) { ++inner; }
    std::int64_t first = 0;
    std::int64_t span = 0;
    for (std::size_t d = 0; d < num_dims; ++d)
    {
        first += (common.offset[d] - source.offset[d]) * strides[d];
        if (d >= inner) { span += (common.shape[d] - 1) * strides[d]; }
    }
    std::vector<std::int64_t> position(inner, 0);
    std::int64_t last_block = -1;
    while (true)
    {
        std::int64_t begin = first;
        for (std::size_t d = 0; d < inner; ++d) { begin += position[d] * strides[d]; }
        for (std::int64_t block = begin / block_elements; block <= (begin + span) / block_elements; ++block)
        {
            if (block != last_block) { visit(block); }
            last_block = block;
        }
        std::size_t d = inner;
        while (d > 0 && ++position[d - 1] == common.shape[d - 1]) { position[--d] = 0; }
        if (d == 0) { return; }
    }
}

ReshardSchedule::ReshardSchedule(const ReshardPlan& plan, const ReshardLimits& limits, std::int64_t rank)
    : plan_(plan), limits_(limits)
{
    EXPECT(limits_.block_bytes > 0 && limits_.cache_bytes >= held_bytes(limits_.block_bytes));
    EXPECT(rank >= 0 && rank < limits_.num_ranks);
    list_units(rank);
    list_uses();
    simulate();
}

void ReshardSchedule::list_units(std::int64_t rank)
{
    struct Place
    {
        ReshardUnit unit;
        std::size_t tensor = 0;
        std::int64_t first = 0;
    };
    std::vector<Place> places;
    for (std::size_t k = 0; k < plan_.targets().size(); ++k)
    {
        const ReshardBox& target = plan_.targets()[k];
        const ReshardTensor& tensor = plan_.tensors()[target.tensor];
        const std::int64_t bytes = plan_.bytes_of(target);
        for (std::int64_t begin = 0; begin < bytes; begin += limits_.block_bytes)
        {
            Place place;
            place.unit.target = k;
            place.unit.block = begin / limits_.block_bytes;
            place.unit.bytes = std::min(limits_.block_bytes, bytes - begin);
            place.tensor = target.tensor;
            place.first = global_index(target.box, tensor.shape, begin / tensor.element_bytes);
            places.push_back(place);
        }
    }
    std::sort(places.begin(), places.end(), [](const Place& a, const Place& b)
              { return std::tie(a.tensor, a.first, a.unit.target) < std::tie(b.tensor, b.first, b.unit.target); });
    // A unit belongs to the rank in whose equal share of the bytes its middle lies.
    const double share = static_cast<double>(plan_.total_bytes()) / static_cast<double>(limits_.num_ranks);
    std::int64_t before = 0;
    for (const Place& place : places)
    {
        const double middle = static_cast<double>(before) + static_cast<double>(place.unit.bytes) / 2;
        const std::int64_t owner = std::min(limits_.num_ranks - 1, static_cast<std::int64_t>(middle / share));
        before += place.unit.bytes;
        if (owner != rank) { continue; }
        units_.push_back(place.unit);
        bytes_written_ += place.unit.bytes;
    }
}

void ReshardSchedule::for_each_piece(const ReshardUnit& unit, const std::function<void(const ReshardPiece&)>& visit) const
{
    const ReshardBox& target = plan_.targets()[unit.target];
    const std::int64_t element_bytes = plan_.tensors()[target.tensor].element_bytes;
    const std::int64_t begin = unit.block * (limits_.block_bytes / element_bytes);
    const auto range = plan_.copies_of(unit.target);
    ReshardPiece piece;
    for (const UnitPart& part : parts_of(target.box, begin, begin + unit.bytes / element_bytes))
    {
        piece.part = part.box;
        piece.offset = part.offset;
        Box common;
        for (std::size_t c = range.first; c < range.second; ++c)
        {
            if (!intersect_boxes(plan_.copies()[c].common, part.box, common)) { continue; }
            piece.source = plan_.copies()[c].source;
            visit(piece);
        }
    }
}

void ReshardSchedule::list_uses()
{
    for (const ReshardUnit& unit : units_)
    {
        const std::int64_t element_bytes = plan_.tensors()[plan_.targets()[unit.target].tensor].element_bytes;
        for_each_piece(unit, [&](const ReshardPiece& piece) {
            const Box& source = plan_.sources()[piece.source].box;
            Box common;
            EXPECT(intersect_boxes(source, piece.part, common));
            for_each_source_block(source, common, element_bytes, limits_.block_bytes, [&](std::int64_t block) {
                Use use;
                use.source = static_cast<std::uint32_t>(piece.source);
                use.block = static_cast<std::uint32_t>(block);
                uses_.push_back(use);
            });
        });
    }
}

std::int64_t ReshardSchedule::block_size(std::size_t source, std::int64_t block) const
{
    return std::min(limits_.block_bytes, plan_.bytes_of(plan_.sources()[source]) - block * limits_.block_bytes);
}

void ReshardSchedule::simulate()
{
    // Next use of the same block, from the end.
    std::vector<std::size_t> next(uses_.size(), never);
    std::unordered_map<std::uint64_t, std::size_t> seen;
    const auto key_of = [](const Use& use) { return (static_cast<std::uint64_t>(use.source) << 32) | use.block; };
    for (std::size_t k = uses_.size(); k-- > 0;)
    {
        const auto found = seen.emplace(key_of(uses_[k]), k);
        if (found.second) { continue; }
        next[k] = found.first->second;
        found.first->second = k;
    }
    // In memory: (next use, use that it was last touched by).
    std::set<std::pair<std::size_t, std::size_t>> held;
    std::unordered_map<std::uint64_t, std::size_t> last_use;
    std::int64_t bytes = 0;
    for (std::size_t k = 0; k < uses_.size(); ++k)
    {
        Use& use = uses_[k];
        const auto found = last_use.find(key_of(use));
        if (found != last_use.end())
        {
            held.erase({k, found->second});
            found->second = k;
        }
        else
        {
            const std::int64_t size = held_bytes(block_size(use.source, use.block));
            while (bytes + size > limits_.cache_bytes || (!held.empty() && held.rbegin()->first == never))
            {
                const std::size_t last = held.rbegin()->second;
                held.erase(std::prev(held.end()));
                bytes -= held_bytes(block_size(uses_[last].source, uses_[last].block));
                last_use.erase(key_of(uses_[last]));
                use.leaves.push_back(last);
            }
            use.load = true;
            bytes += size;
            bytes_read_ += block_size(use.source, use.block);
            peak_cache_bytes_ = std::max(peak_cache_bytes_, bytes);
            last_use.emplace(key_of(use), k);
        }
        held.insert({next[k], k});
    }
}

}  // namespace plimsoll
