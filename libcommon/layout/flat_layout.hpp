#pragma once
/// Where each canonical tensor of a rank lies in its flat buffers, and which box of the global tensor that is.
///
/// A unit is one contiguous buffer. Inside a unit: canonical local tensors ordered (decay, no_decay, frozen), each
/// fuse group and each tensor outside one aligned to 256 B, the unit padded to dp shards x 256 B. Alignment and
/// vocabulary padding are gaps without a box: zero, outside norm and digest. The same at every ZeRO stage. Offsets are in
/// elements. The shard of dp rank r is [r, r+1) * unit elements / shards.
///
/// Worked example (also a test): see flat_layout_test.cpp.

#include <cstdint>
#include <string>
#include <vector>

#include "layout/device_mesh.hpp"
#include "layout/model_spec.hpp"
#include "layout/parallel_layout.hpp"

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
    TensorSpec spec;
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
    std::vector<FlatTensor> tensors;
    std::int64_t num_elements = 0;       ///< with padding: a multiple of shards * 256 B
    std::int64_t shard_elements = 0;     ///< num_elements / shards
    std::int64_t decay_elements = 0;     ///< [0, decay_elements) is the decay group, then no_decay up to frozen_begin
    std::int64_t frozen_begin = 0;
};

/// All units of one rank (its pipeline stage and tp slice), in unit order.
struct FlatLayout
{
    std::int64_t element_bytes = 4;
    std::int64_t shards = 1;
    std::vector<FlatUnit> units;

    std::int64_t num_elements() const;
    /// @throws InternalError when this rank holds no such tensor.
    const FlatTensor& tensor(const std::string& name) const;
    const FlatUnit& unit_of(const std::string& name) const;
};

/// @pre validate(layout, model, layout.world()) is empty. `element_bytes` is that of the parameters' type.
FlatLayout make_flat_layout(const ModelSpec& model, const ParallelLayout& layout,
                            const MeshCoordinate& coordinate, std::int64_t element_bytes);

/// Blocks [first, last) of a pipeline stage: layers / pp each, the remainder to the first stages.
struct StageRange
{
    std::int64_t first = 0;
    std::int64_t last = 0;
};
StageRange stage_layers(const ModelSpec& model, const ParallelLayout& layout, std::int64_t pp_rank);

/// A range of a rank's local flat storage and the box of the global tensor that it holds.
struct OwnedBox
{
    std::int64_t local_offset = 0; ///< elements from the start of the unit (parameters) or of the shard (optimizer state)
    Box box;
};

enum class StateKind
{
    model,       ///< parameters: the whole unit is there (up to ZeRO 2)
    optimizer,   ///< master, moments: the dp shard when zero_stage >= 1
};

/// Who owns what: trainer, planner, checkpoint writer and resharder all ask this. A flat range of an n-dimensional
/// tensor is at most 2n-1 boxes. Empty when this coordinate holds nothing of the tensor.
std::vector<OwnedBox> boxes_of(const FlatLayout& flat, const ParallelLayout& layout, const MeshCoordinate& coordinate,
                               const std::string& tensor, StateKind state);

/// Decomposes the flat range [begin, end) of a row-major tensor of `shape` into at most 2n-1 boxes, in order.
std::vector<Box> boxes_of_flat_range(const std::vector<std::int64_t>& shape, std::int64_t begin, std::int64_t end);

}  // namespace plimsoll
