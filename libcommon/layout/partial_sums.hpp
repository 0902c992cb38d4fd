#pragma once
/// Which parts of a rank's gradients are partial sums over neighbouring tp ranks, and in which messages they are summed once per
/// step. Trainer and plan ask this. Pure.
///
/// A range of at least collective_small_bytes is a sum by itself. Smaller ones (norms, biases, head norms), of which every layer
/// has some, travel together: one sum for each size of group.

#include <cstdint>
#include <vector>

#include "layout/flat_layout.hpp"

namespace plimsoll
{

/// Elements [begin, end) of unit `unit`, inside this rank's share of it (what StateKind::optimizer owns).
struct PartialRange
{
    std::size_t unit = 0;
    std::int64_t begin = 0;
    std::int64_t end = 0;
};

struct PartialSum
{
    std::int64_t ranks = 1;           ///< of the group: all of tp, or those that share KV heads
    std::vector<PartialRange> ranges; ///< more than one: copied together for the sum
    std::int64_t num_elements() const;
};

/// In the order in which they are issued; the same on all ranks of a group.
std::vector<PartialSum> partial_sums(const FlatLayout& flat, const ParallelLayout& layout, const MeshCoordinate& coordinate);

/// Elements of the largest sum that is copied together: room for one is enough.
std::int64_t partial_sum_room(const std::vector<PartialSum>& sums);

}  // namespace plimsoll
