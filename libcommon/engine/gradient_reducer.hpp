#pragma once
/// Sums the gradients of a step over all ranks that hold a part of them, unit by unit, and says what counts in the global
/// norm. Torch-free; one control thread per rank; every rank of a stage calls the same functions for the same units in order.
///
/// Which groups take part follows from the placement record of each tensor (ShardSpec) and the unit's kind, never from a name:
///     1. tensors whose gradient is a partial sum on several tp ranks: sum over these;
///     2. the whole unit: all-reduce over dp, or reduce-scatter from zero 1 on (the rank's shard then holds the sum);
///     3. a tied embedding on two stages: sum of what step 2 left, in stage order, so that both make the same update.
/// All sums have one order and the same bits whatever the ZeRO stage (communicator.hpp).

#include <cstdint>
#include <vector>

#include "comm/rank_groups.hpp"
#include "layout/flat_layout.hpp"

namespace plimsoll
{

/// Elements [begin, end) of a unit.
struct UnitRange
{
    std::int64_t begin = 0;
    std::int64_t end = 0;
};

class GradientReducer
{
  public:
    /// The arguments must outlive the reducer. `flat` is that of groups.coordinate.
    GradientReducer(const FlatLayout& flat, const ParallelLayout& layout, RankGroups& groups);

    /// `grads` is the whole unit. Afterwards owned(unit) of it holds the sums; from zero 1 on the rest is undefined.
    void reduce(std::int64_t unit, BufferView grads, Stream& stream);

    /// Fills `params` (the whole unit) from the ranks' updated shards; nothing below zero 1.
    void gather(std::int64_t unit, BufferView params, Stream& stream);

    /// What this rank updates: its dp shard from zero 1 on, else the whole unit.
    UnitRange owned(std::int64_t unit) const;

    /// The ranges of a unit that count on this rank in the global norm: over all ranks each element of each tensor exactly
    /// once. The same at every ZeRO stage, so that the norm has the same bits.
    const std::vector<UnitRange>& norm_ranges(std::int64_t unit) const { return norm_ranges_[static_cast<std::size_t>(unit)]; }

  private:
    struct Partial
    {
        UnitRange range;
        Communicator* group = nullptr;
    };

    bool sharded() const { return layout_.zero_stage >= 1; }
    const FlatUnit& unit_at(std::int64_t unit) const { return flat_.units[static_cast<std::size_t>(unit)]; }
    void find_partials(const FlatUnit& unit);
    void find_norm_ranges(const FlatUnit& unit);

    const FlatLayout& flat_;
    ParallelLayout layout_;
    RankGroups& groups_;
    std::vector<std::vector<Partial>> partials_;      // by unit
    std::vector<std::vector<UnitRange>> norm_ranges_; // by unit
};

}  // namespace plimsoll
