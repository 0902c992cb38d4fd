#pragma once
/// Parameters, gradients and optimizer moments of one rank as flat buffers, one per unit, with a view for each tensor.
///
/// Ownership: this object owns all buffers; views of what it keeps stay valid for its lifetime. One control thread. The order of
/// elements is FlatLayout's; padding stays zero.
///
/// bf16 parameters have a master copy in fp32, which the optimizer updates and checkpoints hold; the parameters are always the
/// master rounded to nearest even. fp32 and fp64 parameters are their own master. Gradients and moments are fp32 at least.
///
/// What is kept of a unit: all of it, or this rank's shard: of moments and master from zero 1 on, of gradients from zero 2, of parameters
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

enum class FlatState { params, grads, exp_avg, exp_avg_sq, master };
constexpr int num_flat_states = 5;

class ShardedParams
{
  public:
    /// `dtype` kFloat, kDouble or kBFloat16. Buffers are zero until initialize() or a checkpoint fills them.
    ShardedParams(const ModelSpec& model, const ParallelLayout& layout, const MeshCoordinate& coordinate,
                  at::ScalarType dtype, MemoryTracker& tracker);

    const FlatLayout& flat() const { return flat_; }
    const ParallelLayout& layout() const { return layout_; }
    const MeshCoordinate& coordinate() const { return coordinate_; }
    at::ScalarType dtype() const { return dtype_; }
    /// Of gradients, moments and master.
    at::ScalarType sum_dtype() const;
    /// Whether the master is a copy of its own; else FlatState::master means the parameters.
    bool keeps_master() const { return sum_dtype() != dtype_; }
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

    /// Sets what this rank owns of the parameters from its master. Under zero 1 and 2 the rest is the other ranks' to send.
    void round_master();
    /// @throws NumericError naming the first tensor whose owned parameters are not the master, rounded
    void check_master() const;

  private:
    struct Place
    {
        std::int64_t unit = 0;
        std::int64_t tensor = 0;
    };
    at::ScalarType type_of(FlatState state) const { return state == FlatState::params ? dtype_ : sum_dtype(); }
    /// Where a state lies: the master with the parameters unless it is a copy of its own.
    std::size_t slot(FlatState state) const
    {
        return static_cast<std::size_t>(state == FlatState::master && !keeps_master() ? FlatState::params : state);
    }
    bool keeps_shard(FlatState state, const FlatUnit& unit) const;
    /// Initial values of a whole unit, padding zero.
    void fill_initial(const FlatUnit& unit, std::uint64_t seed, const at::Tensor& values) const;
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
