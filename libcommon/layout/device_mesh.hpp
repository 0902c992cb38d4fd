#pragma once
/// Named axes over ranks in a stated order: rank <-> coordinate, and the ranks of a group. Pure arithmetic.

#include <array>
#include <cstdint>
#include <vector>

#include "layout/parallel_layout.hpp"

namespace plimsoll
{

enum class MeshAxis { tp = 0, cp = 1, dp = 2, pp = 3 };  // fastest first: the default order
constexpr int num_mesh_axes = 4;

/// A rank's place: index on each axis, indexed by MeshAxis.
struct MeshCoordinate
{
    std::array<std::int64_t, num_mesh_axes> index{};
    std::int64_t operator[](MeshAxis axis) const { return index[static_cast<int>(axis)]; }
};

class DeviceMesh
{
  public:
    /// Default order, fastest first: tp, cp, dp, pp. With tp 2, dp 2: rank 1 is tp 1 dp 0, rank 2 is tp 0 dp 1.
    explicit DeviceMesh(const ParallelLayout& layout);

    std::int64_t world() const { return world_; }
    std::int64_t size(MeshAxis axis) const { return sizes_[static_cast<int>(axis)]; }
    MeshCoordinate coordinate(std::int64_t rank) const;
    std::int64_t rank(const MeshCoordinate& coordinate) const;
    /// World ranks of the group along `axis` that contains `rank`, in axis order.
    std::vector<std::int64_t> group(MeshAxis axis, std::int64_t rank) const;

  private:
    std::array<std::int64_t, num_mesh_axes> sizes_{};
    std::int64_t world_ = 1;
};

}  // namespace plimsoll
