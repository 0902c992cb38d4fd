#include "layout/device_mesh.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace plimsoll
{
namespace
{

ParallelLayout degrees_of(std::int64_t tp, std::int64_t cp, std::int64_t dp, std::int64_t pp)
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
    const DeviceMesh mesh(degrees_of(1, 1, 1, 1));
    EXPECT_EQ(mesh.world(), 1);
    EXPECT_EQ(mesh.group(MeshAxis::dp, 0), std::vector<std::int64_t>{0});
    EXPECT_THROW(mesh.coordinate(1), InternalError);
    EXPECT_THROW(mesh.coordinate(-1), InternalError);
    EXPECT_THROW(DeviceMesh(degrees_of(0, 1, 1, 1)), InternalError);
}

TEST(DeviceMesh, TensorParallelRanksAreNeighbours)
{
    const DeviceMesh mesh(degrees_of(2, 1, 2, 1));
    EXPECT_EQ(mesh.coordinate(1)[MeshAxis::tp], 1);
    EXPECT_EQ(mesh.coordinate(1)[MeshAxis::dp], 0);
    EXPECT_EQ(mesh.coordinate(2)[MeshAxis::tp], 0);
    EXPECT_EQ(mesh.coordinate(2)[MeshAxis::dp], 1);
}

TEST(DeviceMesh, GroupsFollowTheOrderTpCpDpPp)
{
    const DeviceMesh mesh(degrees_of(2, 3, 2, 2));
    using Ranks = std::vector<std::int64_t>;
    EXPECT_EQ(mesh.world(), 24);
    EXPECT_EQ(mesh.group(MeshAxis::tp, 9), (Ranks{8, 9}));
    EXPECT_EQ(mesh.group(MeshAxis::cp, 9), (Ranks{7, 9, 11}));
    EXPECT_EQ(mesh.group(MeshAxis::dp, 9), (Ranks{3, 9}));
    EXPECT_EQ(mesh.group(MeshAxis::pp, 9), (Ranks{9, 21}));
}

TEST(DeviceMesh, AnotherOrderMovesTheNeighbours)
{
    ParallelLayout layout = degrees_of(2, 1, 2, 3);
    layout.axis_order = parse_axis_order("pp,dp,ep,tp,cp");
    const DeviceMesh mesh(layout);
    using Ranks = std::vector<std::int64_t>;
    EXPECT_EQ(mesh.group(MeshAxis::pp, 4), (Ranks{3, 4, 5}));
    EXPECT_EQ(mesh.group(MeshAxis::dp, 4), (Ranks{1, 4}));
    EXPECT_EQ(mesh.group(MeshAxis::tp, 4), (Ranks{4, 10}));
    for (std::int64_t rank = 0; rank < mesh.world(); ++rank) { EXPECT_EQ(mesh.rank(mesh.coordinate(rank)), rank); }
}

TEST(DeviceMesh, AxisOrderNamesEachAxisOnce)
{
    const auto message_of = [](const char* text) -> std::string
    {
        try
        {
            parse_axis_order(text);
        }
        catch (const ConfigError& error)
        {
            return error.what();
        }
        return "";
    };
    EXPECT_EQ(parse_axis_order("tp,cp,ep,dp,pp"), default_axis_order);
    EXPECT_EQ(parse_axis_order("tp,cp,dp,pp"), default_axis_order);
    EXPECT_EQ(message_of("tp,cp,dp,xp"),
              "axis-order 'tp,cp,dp,xp' names no axis 'xp' (known: tp cp ep dp pp). write tp,cp,ep,dp,pp in the order wanted");
    EXPECT_EQ(message_of("tp,cp,dp,tp"), "axis-order 'tp,cp,dp,tp' names tp twice");
    EXPECT_EQ(message_of("tp,dp,pp"), "axis-order 'tp,dp,pp' leaves out cp (each axis has its place)");
    EXPECT_NE(message_of(""), "");
}

TEST(DeviceMesh, ATensorParallelGroupStaysInsideANode)
{
    ParallelLayout layout = degrees_of(4, 1, 2, 1);
    EXPECT_EQ(tp_node_fault(layout, 0), "");
    EXPECT_EQ(tp_node_fault(layout, 4), "");
    EXPECT_EQ(tp_node_fault(layout, 8), "");
    EXPECT_EQ(tp_node_fault(layout, 2), "tp 4 crosses nodes of 2 ranks (ranks 0 1 .. 3 of one group send to each other in every layer). "
                                        "choose a tp that divides them, or set tp-across-nodes");
    EXPECT_NE(tp_node_fault(layout, 3), "");
    layout.axis_order = parse_axis_order("dp,tp,cp,pp");
    EXPECT_EQ(tp_node_fault(layout, 4), "tp 4 crosses nodes of 4 ranks (ranks 0 2 .. 6 of one group send to each other in every layer). "
                                        "put tp first in axis-order");
    layout = degrees_of(2, 1, 1, 2);
    EXPECT_EQ(tp_node_fault(layout, 1), "tp 2 crosses nodes of 1 ranks (ranks 0 and 1 of one group send to each other in every layer). "
                                        "choose a tp that divides them, or set tp-across-nodes");
}

TEST(DeviceMesh, RankAndCoordinateAreInverse)
{
    const DeviceMesh mesh(degrees_of(3, 2, 4, 5));
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
