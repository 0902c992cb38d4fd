#pragma once
/// The communicators of one rank by mesh axis, and its place on the mesh. A group of one is a one-rank communicator.

#include <memory>

#include "comm/communicator.hpp"
#include "layout/device_mesh.hpp"
#include "layout/parallel_layout.hpp"

namespace plimsoll
{

struct RankGroups
{
    MeshCoordinate coordinate;
    std::unique_ptr<Communicator> world;
    std::unique_ptr<Communicator> dp;       ///< ranks that share one copy of what ZeRO shards: all of dp without dp-shard
    std::unique_ptr<Communicator> replicas; ///< ranks with the same shard; a group of one without dp-shard
    std::unique_ptr<Communicator> tp;
    std::unique_ptr<Communicator> pp;        ///< in stage order
    std::unique_ptr<Communicator> kv;        ///< tp ranks that share KV heads; a group of one unless tp > KV heads
    std::unique_ptr<Communicator> embedding; ///< the stages of a tied embedding and its head; elsewhere, and in a V, a group of one

    /// Of all data-parallel ranks.
    std::int64_t dp_rank() const { return coordinate[MeshAxis::dp]; }
    std::int64_t dp_size() const { return dp->size() * replicas->size(); }
};

/// Every rank of `world` calls it. `kv_heads` as in ModelSpec. @pre world.size() == layout.world()
RankGroups make_rank_groups(Communicator& world, const ParallelLayout& layout, std::int64_t kv_heads);

/// Of a run with one rank.
RankGroups make_single_rank_groups();

}  // namespace plimsoll
