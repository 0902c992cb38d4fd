#pragma once
/// Parameters, gradients and optimizer moments of one rank as flat buffers, one per unit, with a view for each tensor.
///
/// Ownership: this object owns all buffers; views stay valid for its lifetime. One control thread. The order of elements is
/// FlatLayout's; padding stays zero. fp32 and fp64 runs keep no separate master.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "layout/flat_layout.hpp"
#include "mem/tracking.hpp"
#include "mem/zeroed_memory.hpp"

namespace plimsoll::nn
{

enum class FlatState { params, grads, exp_avg, exp_avg_sq };
constexpr int num_flat_states = 4;

class ShardedParams
{
  public:
    /// `dtype` kFloat or kDouble. Buffers are zero until initialize() or a checkpoint fills them.
    ShardedParams(const ModelSpec& model, const ParallelLayout& layout, const MeshCoordinate& coordinate,
                  at::ScalarType dtype, MemoryTracker& tracker);

    const FlatLayout& flat() const { return flat_; }
    const ParallelLayout& layout() const { return layout_; }
    const MeshCoordinate& coordinate() const { return coordinate_; }
    at::ScalarType dtype() const { return dtype_; }
    std::int64_t num_units() const { return static_cast<std::int64_t>(flat_.units.size()); }

    /// The buffer of a unit, 1-D, padding included: the whole unit, of the moments from zero 1 on this rank's dp shard.
    const at::Tensor& buffer(FlatState state, std::int64_t unit) const;
    /// View of one tensor in its local shape.
    at::Tensor view(FlatState state, const std::string& name) const;
    /// One view over tensors that are neighbours in their unit, joined along dim 0 ("qkv", "gate_up").
    /// @throws InternalError when they are not adjacent or their other dims differ.
    at::Tensor fused_view(FlatState state, const std::vector<std::string>& names) const;
    bool has(const std::string& name) const { return units_.count(name) != 0; }

    /// Initial weights from a counter-based generator keyed by (seed, tensor name, global element index): no layout, thread
    /// count or order of calls changes them.
    void initialize(std::uint64_t seed);

    void zero_grads();

  private:
    struct Place
    {
        std::int64_t unit = 0;
        std::int64_t tensor = 0;
    };
    const FlatTensor& flat_tensor(const std::string& name) const;
    const Place& place(const std::string& name) const;

    ParallelLayout layout_;
    MeshCoordinate coordinate_;
    at::ScalarType dtype_;
    FlatLayout flat_;
    std::unordered_map<std::string, Place> units_;
    std::vector<ZeroedMemory> memory_;
    std::vector<std::vector<at::Tensor>> buffers_;  // [state][unit]
};

}  // namespace plimsoll::nn
