#pragma once
/// How one canonical tensor is placed on the mesh, and which unit of the flat layout holds it.

#include <cstdint>
#include <string_view>

namespace plimsoll
{

/// Unit of gathering, reduction and optimizer shards (docs/architecture.md, decision 8).
enum class UnitKind
{
    tied_embedding, ///< token embedding that is also the head
    embedding,      ///< token embedding (untied) and learned positions
    block,          ///< one transformer layer
    head,           ///< final norm and, unless tied, the head
};

/// Order inside a unit follows this enum.
enum class DecayGroup { decay = 0, no_decay = 1, frozen = 2 };

enum class InitKind { normal, ones, zeros };

/// Placement on one axis.
enum class Placement
{
    replicate,
    replicate_grad_partial, ///< replicated value whose gradient is a partial sum on each rank
    shard,                  ///< cut along `dim` into multiples of `granule`
};

/// Placement on the tensor-parallel axis. Pipeline placement follows from unit and layer, data-parallel sharding from
/// the flat layout.
struct ShardSpec
{
    Placement tp = Placement::replicate;
    int dim = 0;              ///< tensor dim that is cut, when tp == shard
    std::int64_t granule = 1; ///< smallest indivisible run along dim, in elements (head_dim for q,k,v,o)
    /// KV heads may be fewer than tp: each is then held by tp / kv_heads neighbouring ranks. 0: not a KV tensor.
    std::int64_t kv_heads = 0;
    /// The cut need not divide (vocabulary): ceil(V / tp) rows per rank, the rest is padding without a box.
    bool padded = false;
};

/// How many neighbouring tp ranks hold the same values whose gradient is a partial sum on each (their sum is the gradient):
/// all tp ranks for replicate_grad_partial, tp / kv_heads for shared KV heads, else 1. Groups are runs of the tp axis.
inline std::int64_t partial_gradient_ranks(const ShardSpec& shard, std::int64_t tp)
{
    if (shard.tp == Placement::replicate_grad_partial) { return tp; }
    return shard.kv_heads > 0 && tp > shard.kv_heads ? tp / shard.kv_heads : 1;
}

}  // namespace plimsoll
