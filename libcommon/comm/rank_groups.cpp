#include "comm/rank_groups.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"
#include "layout/stage_split.hpp"

namespace plimsoll
{
namespace
{

/// The run of `length` members of `group` that holds world rank `rank`.
std::vector<std::int64_t> part_with(const std::vector<std::int64_t>& group, std::int64_t rank, std::int64_t length)
{
    const auto place = std::find(group.begin(), group.end(), rank) - group.begin();
    const auto first = group.begin() + place / length * length;
    return std::vector<std::int64_t>(first, first + length);
}

}  // namespace

RankGroups make_rank_groups(Communicator& world, const ParallelLayout& layout, std::int64_t kv_heads)
{
    EXPECT(world.size() == layout.world());
    const DeviceMesh mesh(layout);
    const std::int64_t rank = world.rank();
    RankGroups groups;
    groups.coordinate = mesh.coordinate(rank);

    std::vector<std::int64_t> everyone(static_cast<std::size_t>(world.size()));
    std::iota(everyone.begin(), everyone.end(), 0);
    groups.world = world.subgroup("world", everyone);
    const std::vector<std::int64_t> tp = mesh.group(MeshAxis::tp, rank);
    groups.tp = world.subgroup("tp", tp);
    const std::vector<std::int64_t> dp = mesh.group(MeshAxis::dp, rank);
    groups.dp = world.subgroup("dp", part_with(dp, rank, layout.shards()));
    std::vector<std::int64_t> same_shard;
    for (std::size_t r = static_cast<std::size_t>(groups.dp->rank()); r < dp.size(); r += static_cast<std::size_t>(layout.shards()))
    {
        same_shard.push_back(dp[r]);
    }
    groups.replicas = world.subgroup("replicas", same_shard);
    const std::vector<std::int64_t> pp = mesh.group(MeshAxis::pp, rank);
    groups.pp = world.subgroup("pp", pp);

    const std::int64_t sharers = kv_heads > 0 && layout.tp > kv_heads ? layout.tp / kv_heads : 1;
    groups.kv = world.subgroup("kv", part_with(tp, rank, sharers));
    const std::vector<std::int64_t> ends = {pp[static_cast<std::size_t>(first_stage(layout))],
                                            pp[static_cast<std::size_t>(last_stage(layout))]};
    const bool is_end = ends_are_apart(layout) && (rank == ends.front() || rank == ends.back());
    groups.embedding = is_end ? world.subgroup("embedding", ends) : make_self_communicator("embedding");
    return groups;
}

RankGroups make_single_rank_groups()
{
    const std::unique_ptr<Communicator> world = make_self_communicator("world");
    return make_rank_groups(*world, ParallelLayout(), 0);
}

}  // namespace plimsoll
