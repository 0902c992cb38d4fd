#pragma once
/// Named axes over ranks in a stated order: rank <-> coordinate, and the ranks of a group. Pure arithmetic.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "layout/parallel_layout.hpp"

namespace plimsoll
{

/// A rank's place: index on each axis, indexed by MeshAxis.
struct MeshCoordinate
{
    std::array<std::int64_t, num_mesh_axes> index{};
    std::int64_t operator[](MeshAxis axis) const { return index[static_cast<int>(axis)]; }
};

class DeviceMesh
{
  public:
    /// In layout.axis_order. With tp 2, dp 2 in the default order: rank 1 is tp 1 dp 0, rank 2 is tp 0 dp 1.
    explicit DeviceMesh(const ParallelLayout& layout);

    std::int64_t world() const { return world_; }
    std::int64_t size(MeshAxis axis) const { return sizes_[static_cast<int>(axis)]; }
    MeshCoordinate coordinate(std::int64_t rank) const;
    std::int64_t rank(const MeshCoordinate& coordinate) const;
    /// World ranks of the group along `axis` that contains `rank`, in axis order.
    std::vector<std::int64_t> group(MeshAxis axis, std::int64_t rank) const;

  private:
    std::array<std::int64_t, num_mesh_axes> sizes_{};
    AxisOrder order_;
    std::int64_t world_ = 1;
};

/// Says which tp group lies on several nodes where each takes `ranks_per_node` neighbouring ranks, and what would help; empty when none
/// does, or when ranks_per_node is 0 (unknown).
std::string tp_node_fault(const ParallelLayout& layout, std::int64_t ranks_per_node);

}  // namespace plimsoll
