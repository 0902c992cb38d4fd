#include "layout/device_mesh.hpp"

#include "base/error.hpp"

namespace plimsoll
{

DeviceMesh::DeviceMesh(const ParallelLayout& layout) : sizes_{{layout.tp, layout.cp, layout.dp, layout.pp}}
{
    for (const std::int64_t size : sizes_)
    {
        EXPECT(size >= 1);
        world_ *= size;
    }
}

MeshCoordinate DeviceMesh::coordinate(std::int64_t rank) const
{
    EXPECT(rank >= 0 && rank < world_);
    MeshCoordinate coordinate;
    for (std::size_t axis = 0; axis < sizes_.size(); ++axis)
    {
        coordinate.index[axis] = rank % sizes_[axis];
        rank /= sizes_[axis];
    }
    return coordinate;
}

std::int64_t DeviceMesh::rank(const MeshCoordinate& coordinate) const
{
    std::int64_t rank = 0;
    for (std::size_t axis = sizes_.size(); axis-- > 0;)
    {
        EXPECT(coordinate.index[axis] >= 0 && coordinate.index[axis] < sizes_[axis]);
        rank = rank * sizes_[axis] + coordinate.index[axis];
    }
    return rank;
}

std::vector<std::int64_t> DeviceMesh::group(MeshAxis axis, std::int64_t rank_in_group) const
{
    MeshCoordinate member = coordinate(rank_in_group);
    std::vector<std::int64_t> ranks;
    for (std::int64_t i = 0; i < size(axis); ++i)
    {
        member.index[static_cast<std::size_t>(axis)] = i;
        ranks.push_back(rank(member));
    }
    return ranks;
}

}  // namespace plimsoll
