#pragma once
/// What each box of one set takes from the boxes of another set of the same tensors, and in which order blocks of it are
/// best copied within a bounded memory. All pure.
///
/// Worked example (a test: ReshardPlan.WorkedExample): a tensor of shape [4, 6], cut along dim 1 into two source boxes of
/// 4 x 3 and along dim 0 into two target boxes of 2 x 6. Four copies of 2 x 3; each target box takes one from each source.

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "layout/box_runs.hpp"

namespace plimsoll
{

struct ReshardTensor
{
    std::string name; ///< for messages: "optim/exp_avg/final_norm.weight"
    std::vector<std::int64_t> shape;
    std::int64_t element_bytes = 4;
};

/// A box of a tensor that lies in a file, or will.
struct ReshardBox
{
    std::size_t tensor = 0;
    std::int64_t file = 0;
    Box box;
};

/// What a target box takes from a source box.
struct ReshardCopy
{
    std::size_t source = 0;
    std::size_t target = 0;
    Box common; ///< in the global tensor
};

class ReshardPlan
{
  public:
    /// Boxes without elements take part in nothing. O((S + T) log + pairs that meet in dim 0).
    ReshardPlan(std::vector<ReshardTensor> tensors, std::vector<ReshardBox> sources, std::vector<ReshardBox> targets);

    const std::vector<ReshardTensor>& tensors() const { return tensors_; }
    const std::vector<ReshardBox>& sources() const { return sources_; }
    const std::vector<ReshardBox>& targets() const { return targets_; }
    /// By target, and within one by place.
    const std::vector<ReshardCopy>& copies() const { return copies_; }
    /// The copies of a target are [first, second).
    std::pair<std::size_t, std::size_t> copies_of(std::size_t target) const;

    std::int64_t bytes_of(const ReshardBox& box) const;
    /// Of all tensors: what must be written, and read at least.
    std::int64_t total_bytes() const;
    /// Bytes of the targets in each file, by file number.
    std::vector<std::int64_t> target_file_bytes() const;

    /// Each element of each tensor lies in exactly one source box and exactly one target box, and the copies fill the targets.
    /// @throws FormatError when a source is at fault, InternalError when a target is
    void prove_coverage() const;

  private:
    void intersect(std::vector<std::size_t>& sources, std::vector<std::size_t>& targets);
    std::vector<ReshardTensor> tensors_;
    std::vector<ReshardBox> sources_, targets_;
    std::vector<ReshardCopy> copies_;
    std::vector<std::size_t> first_copy_; ///< per target, and the end
};

/// A block of a target box: elements [block x block elements, ...) of it in C order, whole blocks but for the last.
struct ReshardUnit
{
    std::size_t target = 0;
    std::int64_t block = 0;
    std::int64_t bytes = 0;
};

/// A part of a unit that comes from one source box.
struct ReshardPiece
{
    std::size_t source = 0;
    Box part;                ///< of the target box, in the global tensor; lies without gaps in the unit
    std::int64_t offset = 0; ///< of part's first element in the unit, elements
};

/// Source blocks of `block_bytes` that the elements of `common` lie in, ascending.
void for_each_source_block(const Box& source, const Box& common, std::int64_t element_bytes, std::int64_t block_bytes,
                           const std::function<void(std::int64_t)>& visit);

struct ReshardLimits
{
    std::int64_t block_bytes = 0; ///< of files, read and written whole
    std::int64_t cache_bytes = 0; ///< of source blocks in memory, each rounded up as buffers are; at least one block
    std::int64_t num_ranks = 1;   ///< that share the work
};

/// What one rank copies, in order: a run of the units in the order of their first elements, so that units which share
/// source blocks are neighbours, and the source blocks that it reads for it. A block stays in memory while there is room;
/// the one that is needed last goes first.
class ReshardSchedule
{
  public:
    /// One touch of a source block by a unit's piece.
    struct Use
    {
        std::uint32_t source = 0;
        std::uint32_t block = 0;
        bool load = false;               ///< not in memory: read
        std::vector<std::size_t> leaves; ///< earlier uses (their numbers) whose block leaves the memory before this load
    };

    /// `plan` outlives the schedule.
    ReshardSchedule(const ReshardPlan& plan, const ReshardLimits& limits, std::int64_t rank);

    const std::vector<ReshardUnit>& units() const { return units_; }
    /// Visits the pieces of a unit in the order of uses(): for each piece its source blocks, ascending.
    void for_each_piece(const ReshardUnit& unit, const std::function<void(const ReshardPiece&)>& visit) const;
    /// Of all units, in order.
    const std::vector<Use>& uses() const { return uses_; }
    std::int64_t bytes_read() const { return bytes_read_; }
    std::int64_t bytes_written() const { return bytes_written_; }
    std::int64_t peak_cache_bytes() const { return peak_cache_bytes_; }
    std::int64_t block_size(std::size_t source, std::int64_t block) const;

  private:
    void list_units(std::int64_t rank);
    void list_uses();
    void simulate();
    const ReshardPlan& plan_;
    ReshardLimits limits_;
    std::vector<ReshardUnit> units_;
    std::vector<Use> uses_;
    std::int64_t bytes_read_ = 0, bytes_written_ = 0, peak_cache_bytes_ = 0;
};

}  // namespace plimsoll
