#include "layout/device_mesh.hpp"

#include "base/error.hpp"

namespace plimsoll
{

DeviceMesh::DeviceMesh(const ParallelLayout& layout)
    : sizes_{{layout.tp, layout.cp, layout.dp, layout.pp}}, order_(layout.axis_order)
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
    for (const MeshAxis axis : order_)
    {
        coordinate.index[static_cast<std::size_t>(axis)] = rank % size(axis);
        rank /= size(axis);
    }
    return coordinate;
}

std::int64_t DeviceMesh::rank(const MeshCoordinate& coordinate) const
{
    std::int64_t rank = 0;
    for (std::size_t place = order_.size(); place-- > 0;)
    {
        const MeshAxis axis = order_[place];
        EXPECT(coordinate[axis] >= 0 && coordinate[axis] < size(axis));
        rank = rank * size(axis) + coordinate[axis];
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

std::string tp_node_fault(const ParallelLayout& layout, std::int64_t ranks_per_node)
{
    if (ranks_per_node <= 0 || layout.tp == 1) { return ""; }
    const DeviceMesh mesh(layout);
    for (std::int64_t rank = 0; rank < mesh.world(); ++rank)
    {
        const std::vector<std::int64_t> group = mesh.group(MeshAxis::tp, rank);
        if (group.front() != rank || group.front() / ranks_per_node == group.back() / ranks_per_node) { continue; }
        const std::string ranks = layout.tp == 2 ? fmt::format("{} and {}", group[0], group[1])
                                                 : fmt::format("{} {} .. {}", group[0], group[1], group.back());
        const bool fits = layout.axis_order.front() != MeshAxis::tp && layout.tp <= ranks_per_node && ranks_per_node % layout.tp == 0;
        return fmt::format("tp {} crosses nodes of {} ranks (ranks {} of one group send to each other in every layer). {}", layout.tp,
                           ranks_per_node, ranks,
                           fits ? "put tp first in axis-order" : "choose a tp that divides them, or set tp-across-nodes");
    }
    return "";
}

}  // namespace plimsoll
