#pragma once
/// Sums the gradients of a step over all ranks that hold a part of them, unit by unit, and says what counts in the global
/// norm; gathers the parameters that ZeRO shards. Torch-free; one control thread per rank; every rank of a stage calls the same
/// functions for the same units in order (plan/unit_order.hpp).
///
/// Which groups take part follows from the placement record of each tensor (ShardSpec) and the unit's kind, never from a name:
///     1. the whole unit: all-reduce over dp, or reduce-scatter from zero 1 on (the rank's shard then holds the sum). It runs
///        beside the backward of other units: start() and wait().
///     2. what is left of all units on this rank, once per step, finish(): sum over the replicas of the shard (dp-shard); over the tp
///        ranks of tensors whose gradient is a partial sum on each (layout/partial_sums.hpp); over the two stages of a tied
///        embedding, in stage order, so that both make the same update.
/// All sums have one order. The bits are the same for zero 0 and 1, and for 2 and 3; with one micro-batch for all.

#include <cstdint>
#include <vector>

#include "comm/rank_groups.hpp"
#include "layout/flat_layout.hpp"
#include "layout/partial_sums.hpp"

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

    /// `grads` is the whole unit and belongs to the sum until wait().
    void start(std::int64_t unit, BufferView grads, Stream& stream);
    /// Afterwards owned(unit) of it holds the sum over dp; from zero 1 on the rest is undefined.
    void wait(std::int64_t unit, Stream& stream);
    /// The sums that are left; `mine` is owned(unit) of the gradients of the step, of every unit. `room` has room_elements() elements.
    void finish(const std::vector<BufferView>& mine, BufferView room, Stream& stream);
    std::int64_t room_elements() const { return partial_sum_room(partial_sums_); }

    /// Fills `params` (the whole unit) from the ranks' shards: each brings owned(unit). They may be under way together.
    void start_gather(std::int64_t unit, BufferView mine, BufferView params, Stream& stream);
    void wait_gather(std::int64_t unit, Stream& stream);

    /// Moves sums and gathers under way forward.
    void progress() { groups_.dp->progress(); }

    /// What this rank updates: its dp shard from zero 1 on, else the whole unit.
    UnitRange owned(std::int64_t unit) const;

    /// The ranges of a unit that count on this rank in the global norm: over all ranks each element of each tensor exactly
    /// once. The same at every ZeRO stage, so that the norm has the same bits.
    const std::vector<UnitRange>& norm_ranges(std::int64_t unit) const { return norm_ranges_[static_cast<std::size_t>(unit)]; }

  private:
    bool sharded() const { return is_sharded(layout_, StateKind::optimizer); }
    const FlatUnit& unit_at(std::int64_t unit) const { return flat_.units[static_cast<std::size_t>(unit)]; }
    void sum_partial(const PartialSum& sum, const std::vector<BufferView>& mine, BufferView room, Stream& stream);
    void find_norm_ranges(const FlatUnit& unit);

    const FlatLayout& flat_;
    ParallelLayout layout_;
    RankGroups& groups_;
    std::vector<PartialSum> partial_sums_;
    std::vector<std::vector<UnitRange>> norm_ranges_; // by unit
    std::vector<Work> sums_, gathers_;                // by unit
};

}  // namespace plimsoll
