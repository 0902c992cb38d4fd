#include "layout/device_mesh.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace plimsoll
{
namespace
{

ParallelLayout make_layout(std::int64_t tp, std::int64_t cp, std::int64_t dp, std::int64_t pp)
{
    ParallelLayout layout;
    layout.tp = tp;
    layout.cp = cp;
    layout.dp = dp;
    layout.pp = pp;
    return layout;
}

TEST(DeviceMesh, OneRankIsAMeshToo)
{
    const DeviceMesh mesh(make_layout(1, 1, 1, 1));
    EXPECT_EQ(mesh.world(), 1);
    EXPECT_EQ(mesh.group(MeshAxis::dp, 0), std::vector<std::int64_t>{0});
    EXPECT_THROW(mesh.coordinate(1), InternalError);
    EXPECT_THROW(mesh.coordinate(-1), InternalError);
    EXPECT_THROW(DeviceMesh(make_layout(0, 1, 1, 1)), InternalError);
}

TEST(DeviceMesh, TensorParallelRanksAreNeighbours)
{
    const DeviceMesh mesh(make_layout(2, 1, 2, 1));
    EXPECT_EQ(mesh.coordinate(1)[MeshAxis::tp], 1);
    EXPECT_EQ(mesh.coordinate(1)[MeshAxis::dp], 0);
    EXPECT_EQ(mesh.coordinate(2)[MeshAxis::tp], 0);
    EXPECT_EQ(mesh.coordinate(2)[MeshAxis::dp], 1);
}

TEST(DeviceMesh, GroupsFollowTheOrderTpCpDpPp)
{
    const DeviceMesh mesh(make_layout(2, 3, 2, 2));
    using Ranks = std::vector<std::int64_t>;
    EXPECT_EQ(mesh.world(), 24);
    EXPECT_EQ(mesh.group(MeshAxis::tp, 9), (Ranks{8, 9}));
    EXPECT_EQ(mesh.group(MeshAxis::cp, 9), (Ranks{7, 9, 11}));
    EXPECT_EQ(mesh.group(MeshAxis::dp, 9), (Ranks{3, 9}));
    EXPECT_EQ(mesh.group(MeshAxis::pp, 9), (Ranks{9, 21}));
}

TEST(DeviceMesh, RankAndCoordinateAreInverse)
{
    const DeviceMesh mesh(make_layout(3, 2, 4, 5));
    for (std::int64_t rank = 0; rank < mesh.world(); ++rank)
    {
        EXPECT_EQ(mesh.rank(mesh.coordinate(rank)), rank);
        for (const MeshAxis axis : {MeshAxis::tp, MeshAxis::cp, MeshAxis::dp, MeshAxis::pp})
        {
            const auto group = mesh.group(axis, rank);
            ASSERT_EQ(static_cast<std::int64_t>(group.size()), mesh.size(axis));
            EXPECT_EQ(group[static_cast<std::size_t>(mesh.coordinate(rank)[axis])], rank);
        }
    }
    MeshCoordinate outside;
    outside.index = {{3, 0, 0, 0}};
    EXPECT_THROW(mesh.rank(outside), InternalError);
}

}  // namespace
}  // namespace plimsoll
