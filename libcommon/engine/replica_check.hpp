#pragma once
/// Compares what several ranks hold in copies: dp replicas of parameters, tensors that tp does not cut, KV heads that tp ranks
/// share, and the two copies of a tied embedding. All must be equal to the bit; a missing reduction or a broken device shows here
/// long before it shows in the loss. Torch-free; one control thread per rank.
///
/// Who holds copies follows from the placement record of each tensor, as in GradientReducer. A check sends 8 bytes per rank and
/// group; only where these differ do ranks exchange one digest per tensor to find the first one.

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "comm/rank_groups.hpp"
#include "layout/flat_layout.hpp"

namespace plimsoll
{

/// What a rank has of a unit's parameters: elements [begin, begin + values.count) of it.
struct HeldParams
{
    BufferView values;
    std::int64_t begin = 0;
};

class ReplicaCheck
{
  public:
    /// The arguments must outlive the check. `flat` is that of groups.coordinate.
    ReplicaCheck(const FlatLayout& flat, const ParallelLayout& layout, RankGroups& groups);

    /// Every rank of the world calls it after the same step. `params` is asked once for each unit.
    /// @throws NumericError on all ranks alike, naming tensor and ranks of the first difference in each group
    void run(std::int64_t step, const std::function<HeldParams(std::int64_t unit)>& params, Stream& stream);

  private:
    /// Tensors of this rank that all members of a group hold.
    struct Copies
    {
        Communicator* group = nullptr;
        const char* title = "";
        std::vector<std::size_t> tensors; ///< in tensors_
    };
    struct Place
    {
        std::int64_t unit = 0;
        const FlatTensor* tensor = nullptr;
    };

    template<class Holds>
    void add(Communicator& group, const char* title, const Holds& holds);
    std::vector<std::uint64_t> digests(const std::function<HeldParams(std::int64_t unit)>& params) const;
    /// Empty when all members agree.
    std::string difference(const Copies& copies, const std::vector<std::uint64_t>& digests, Stream& stream) const;
    std::string name_difference(const Copies& copies, const std::vector<std::uint64_t>& mine) const;

    const FlatLayout& flat_;
    RankGroups& groups_;
    std::vector<Place> tensors_;
    std::vector<Copies> copies_;
};

}  // namespace plimsoll
