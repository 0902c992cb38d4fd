#pragma once
/// Parameters, gradients and optimizer moments of one rank as flat buffers, one per unit, with a view for each tensor.
///
/// Ownership: this object owns all buffers; views of what it keeps stay valid for its lifetime. One control thread. The order of
/// elements is FlatLayout's; padding stays zero. fp32 and fp64 runs keep no separate master.
///
/// What is kept of a unit: all of it, or this rank's shard: of moments from zero 1 on, of gradients from zero 2, of parameters
/// under zero 3 (is_gathered()). The whole unit then comes and goes: make(), drop().

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

    /// The whole unit, 1-D, padding included; of moments what is kept. @pre it is there: kept whole, or made
    const at::Tensor& buffer(FlatState state, std::int64_t unit) const;
    /// What this rank updates and saves: its shard from zero 1 on, else the whole unit. Always there.
    at::Tensor owned(FlatState state, std::int64_t unit) const;
    /// Whether a unit's parameters or gradients come and go.
    bool comes_and_goes(FlatState state, std::int64_t unit) const;
    /// Room for the whole unit: parameters undefined, gradients zero. @pre comes_and_goes(), it is not there
    void make(FlatState state, std::int64_t unit);
    /// @pre no view is used any more
    void drop(FlatState state, std::int64_t unit);
    /// View of one tensor in its local shape. @pre as buffer()
    at::Tensor view(FlatState state, const std::string& name) const;
    /// One view over tensors that are neighbours in their unit, joined along dim 0 ("qkv", "gate_up").
    /// @throws InternalError when they are not adjacent or their other dims differ.
    at::Tensor fused_view(FlatState state, const std::vector<std::string>& names) const;
    bool has(const std::string& name) const { return units_.count(name) != 0; }

    /// Initial weights from a counter-based generator keyed by (seed, tensor name, global element index): no layout, thread
    /// count or order of calls changes them.
    void initialize(std::uint64_t seed);

    /// Of what is kept.
    void zero_grads();

  private:
    struct Place
    {
        std::int64_t unit = 0;
        std::int64_t tensor = 0;
    };
    bool keeps_shard(FlatState state, const FlatUnit& unit) const;
    void initialize_unit(const FlatUnit& unit, std::uint64_t seed);
    const FlatTensor& flat_tensor(const std::string& name) const;
    const Place& place(const std::string& name) const;

    ParallelLayout layout_;
    MeshCoordinate coordinate_;
    at::ScalarType dtype_;
    FlatLayout flat_;
    std::unordered_map<std::string, Place> units_;
    std::vector<ZeroedMemory> memory_;
    std::vector<std::vector<at::Tensor>> kept_;   // [state][unit]
    std::vector<std::vector<at::Tensor>> whole_;  // [state][unit]; undefined while it is not there
};

}  // namespace plimsoll::nn
