#pragma once
/// Where each canonical tensor of a rank lies in its flat buffers, and which box of the global tensor that is.
///
/// A unit is one contiguous buffer. Inside a unit: canonical local tensors ordered (decay, no_decay, frozen), each
/// fuse group and each tensor outside one aligned to 256 B, the unit padded to dp shards x 256 B. Alignment and
/// vocabulary padding are gaps without a box: zero, outside norm and digest. The same at every ZeRO stage. Offsets are in
/// elements. Shard r, of dp rank r (of its group, where dp-shard cuts dp into groups), is [r, r+1) * unit elements / shards. All functions are pure.
///
/// Worked example (a test: FlatLayout.WorkedExample): block 0 of a llama with D 6, H 3, K 1, E 2, F 10 in fp32 (256 B = 64
/// elements) on tp 1, dp 3. q, k, v lie without a gap, so that they are one view [(3 + 2) 2, 6] at 0.
///
///     offset  elements  tensor                       shape
///          0        36  layers.0.attn.q_proj.weight  [6, 6]    decay
///         36        12  layers.0.attn.k_proj.weight  [2, 6]
///         48        12  layers.0.attn.v_proj.weight  [2, 6]
///         64        36  layers.0.attn.o_proj.weight  [6, 6]
///        128        60  layers.0.mlp.gate_proj.weight [10, 6]
///        188        60  layers.0.mlp.up_proj.weight  [10, 6]
///        256        60  layers.0.mlp.down_proj.weight [6, 10]
///        320         6  layers.0.input_norm.weight   [6]       no_decay: decay_elements = 320
///        384         6  layers.0.mlp_norm.weight     [6]
///        448            frozen_begin; the unit ends at 576 = 3 x 192, a multiple of 3 x 64
///
/// Under zero 1 the shards end at 192 and 384: dp rank 0 holds of up_proj's optimizer state the box [0:1, 0:4], rank 1 the
/// boxes [0:1, 4:6] and [1:10, 0:6]; rank 2 holds mlp_norm alone.

#include <cstdint>
#include <string>
#include <vector>

#include "layout/device_mesh.hpp"
#include "layout/model_spec.hpp"
#include "layout/parallel_layout.hpp"
#include "layout/stage_split.hpp"

namespace plimsoll
{

/// A hyper-rectangle of a global tensor: element offset and extent per dim.
struct Box
{
    std::vector<std::int64_t> offset;
    std::vector<std::int64_t> shape;

    std::int64_t num_elements() const;
    friend bool operator==(const Box& a, const Box& b) { return a.offset == b.offset && a.shape == b.shape; }
};

/// One canonical tensor of a rank inside its unit.
struct FlatTensor
{
    TensorSpec spec;                       ///< placed as in this layout: sequence parallel makes gradients partial sums
    std::vector<std::int64_t> local_shape; ///< with vocabulary padding
    std::int64_t offset = 0;               ///< elements from the unit's start
    std::int64_t num_elements() const;     ///< product of local_shape
    Box box;                               ///< part of the global tensor that local_shape holds, padding cut off
};

struct FlatUnit
{
    std::string name; ///< "embedding", "layers.3", "head", "tied_embedding"
    UnitKind kind = UnitKind::block;
    std::int64_t layer = -1;
    std::int64_t chunk = 0; ///< of the stage, that a block belongs to
    std::vector<FlatTensor> tensors;
    std::int64_t num_elements = 0;       ///< with padding: a multiple of shards * 256 B
    std::int64_t shard_elements = 0;     ///< num_elements / shards
    std::int64_t decay_elements = 0;     ///< [0, decay_elements) is the decay group, then no_decay up to frozen_begin;
    std::int64_t frozen_begin = 0;       ///< both with their alignment gaps, the unit's own padding excluded
};

/// All units of one rank (its pipeline stage and tp slice), in unit order: tied_embedding, embedding, blocks, head. A tied
/// embedding stands on the first and the last stage. With several chunks on a stage, blocks in the order of their layers.
struct FlatLayout
{
    std::int64_t element_bytes = 4;
    std::int64_t shards = 1;
    std::vector<FlatUnit> units;

    std::int64_t num_elements() const;
    /// nullptr when this rank holds no such tensor.
    const FlatTensor* find(const std::string& name) const;
    /// @throws InternalError when this rank holds no such tensor.
    const FlatTensor& tensor(const std::string& name) const;
    const FlatUnit& unit_of(const std::string& name) const;
};

/// @pre validate(layout, model, layout.world()) is empty. `element_bytes` is that of the parameters' type, a divisor of 256.
FlatLayout make_flat_layout(const ModelSpec& model, const ParallelLayout& layout,
                            const MeshCoordinate& coordinate, std::int64_t element_bytes);

/// A range of a rank's local flat storage and the box of the global tensor that it holds.
struct OwnedBox
{
    /// Elements from the start of the unit (what the state does not shard) or of the rank's shard. The box lies there in C order without gaps.
    std::int64_t local_offset = 0;
    Box box;
};

enum class StateKind
{
    model,       ///< parameters: the whole unit, the dp shard when zero_stage >= 3
    optimizer,   ///< master, moments: the dp shard when zero_stage >= 1
};

/// Whether dp ranks hold shards of this state instead of copies.
bool is_sharded(const ParallelLayout& layout, StateKind state);

/// Whether a rank keeps only its shard of a unit's parameters and gathers the rest when it needs them: under ZeRO 3, unless the
/// unit is small.
bool is_gathered(const FlatUnit& unit, const ParallelLayout& layout, std::int64_t element_bytes);

/// This coordinate's shard: its place among the shards of a unit.
std::int64_t shard_index(const ParallelLayout& layout, const MeshCoordinate& coordinate);

/// Who owns what: trainer, planner, checkpoint writer and resharder all ask this. A flat range of an n-dimensional
/// tensor is at most 2n-1 boxes. Empty when this coordinate holds nothing of the tensor. `flat` is that of `coordinate`.
std::vector<OwnedBox> boxes_of(const FlatLayout& flat, const ParallelLayout& layout, const MeshCoordinate& coordinate,
                               const std::string& tensor, StateKind state);
/// The same of a tensor that is at hand: no search by name. `tensor` is one of `unit`.
std::vector<OwnedBox> boxes_of(const FlatUnit& unit, const FlatTensor& tensor, const ParallelLayout& layout,
                               const MeshCoordinate& coordinate, StateKind state);

/// Which copy of its boxes of `tensor` this coordinate holds; 0 for exactly one holder of each element: it counts in norm and
/// digest and is written to a checkpoint. Copies arise from replicas over tp, shared KV heads, dp (unless sharded), cp, and the
/// two stages of a tied embedding (the first is copy 0). @pre the coordinate's stage holds the tensor
std::int64_t replica_index(const FlatLayout& flat, const ParallelLayout& layout, const MeshCoordinate& coordinate,
                           const std::string& tensor, StateKind state);

/// Decomposes the flat range [begin, end) of a row-major tensor of `shape` into at most 2n-1 boxes, in order.
std::vector<Box> boxes_of_flat_range(const std::vector<std::int64_t>& shape, std::int64_t begin, std::int64_t end);

}  // namespace plimsoll
