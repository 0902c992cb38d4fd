#pragma once
/// Which sample stands at which place of a run: a pure function of (seed, position), without any I/O. docs/data_order.md
/// says every rule to the bit.
///
///     BlendOrder      position of the run -> source, position in that source
///     EpochOrder      position in a source -> epoch, sample
///     SampleOrder     both
///
/// Memory does not depend on the number of samples: at most 2 tables of 128 KiB for a source, 384 KiB for a blend, and 2 MiB more
/// while a block's pattern is made.
/// One thread at a time: the tables of the epoch, pool and block last asked for are kept.

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "base/rng.hpp"
#include "layout/run_config.hpp"

namespace plimsoll
{

/// The order within one source of `size` samples, epoch by epoch. Each epoch holds every sample once.
///
/// global: one keyed permutation. none: 0, 1, 2, ... window: the samples are cut into blocks of neighbours, the blocks are
/// permuted, and every pool of 16 blocks in turn is shuffled: what is read together lies in 16 places.
class EpochOrder
{
  public:
    static constexpr std::int64_t blocks_per_pool = 16;

    /// `window`: samples of a pool, rounded down to a multiple of 16 (at least 16); only with Shuffle::Kind::window.
    /// @pre size > 0
    EpochOrder(std::int64_t size, Shuffle::Kind kind, std::int64_t window, std::uint64_t seed);

    std::int64_t size() const { return size_; }
    std::uint64_t seed() const { return seed_; }
    std::int64_t pool_samples() const { return block_ * blocks_per_pool; }
    /// Sample at `position` = epoch * size + place.
    std::int64_t sample_at(std::int64_t position) const;

  private:
    void enter_epoch(std::int64_t epoch) const;
    std::int64_t in_pools(std::int64_t place) const;
    std::int64_t in_blocks(std::int64_t place) const;

    std::int64_t size_;
    Shuffle::Kind kind_;
    std::int64_t block_ = 0;
    std::uint64_t seed_;
    mutable std::int64_t epoch_ = -1;
    mutable std::int64_t pool_ = -1;
    mutable std::int64_t short_block_at_ = 0;           ///< whole blocks before the short one
    mutable KeyedPermutation permutation_{0, 0, 0, 0};  ///< of all samples; window: of the whole blocks
    mutable KeyedPermutation in_pool_{0, 0, 0, 0};
};

/// How sources take turns. Every block of 65,536 positions holds exactly the same number of samples of a source; within it
/// a source's turns are spread evenly: in any stretch from the start of the run it is at most D + 1 samples (D sources) off its
/// share. A block's pattern is a sort of keyed times, so any position is found without those before it.
class BlendOrder
{
  public:
    static constexpr std::int64_t block_positions = std::int64_t{1} << 16;

    struct Place
    {
        std::int64_t source = 0;
        std::int64_t position = 0;  ///< in that source, from the start of the run
    };

    /// @throws ConfigError for a source whose share rounds to no sample of a block, and for more sources than positions of it
    BlendOrder(const std::vector<double>& weights, const std::vector<std::string>& names, std::uint64_t seed);

    /// Samples of `source` in every block: largest remainders of weight x 65,536.
    std::int64_t in_block(std::int64_t source) const { return counts_[static_cast<std::size_t>(source)]; }
    Place at(std::int64_t position) const;
    /// Of positions [0, positions), how many each source has.
    std::vector<std::int64_t> counts(std::int64_t positions) const;

  private:
    void enter_block(std::int64_t block) const;

    std::vector<std::int64_t> counts_;
    std::uint64_t seed_;
    mutable std::int64_t block_ = -1;
    mutable std::vector<std::uint16_t> sources_;  ///< of each position of the block
    mutable std::vector<std::uint32_t> ranks_;    ///< among the positions of the same source
};

struct SampleId
{
    std::int64_t source = 0;
    std::int64_t epoch = 0;   ///< of that source
    std::int64_t sample = 0;  ///< below its size
};

struct SampleSource
{
    std::string name;       ///< keys its order where there are several
    std::int64_t size = 0;  ///< samples
    double weight = 1;
};

/// One source keeps the order of version feistel8-v1 (with shuffle global); its weight and name then mean nothing.
class SampleOrder
{
  public:
    /// @pre at least one source, each with a sample @throws ConfigError as BlendOrder
    SampleOrder(const std::vector<SampleSource>& sources, Shuffle::Kind kind, std::int64_t window, std::uint64_t seed);

    SampleId at(std::int64_t position) const;
    std::int64_t num_sources() const { return static_cast<std::int64_t>(epochs_.size()); }
    std::int64_t size(std::int64_t source) const { return epochs_[static_cast<std::size_t>(source)].size(); }
    std::int64_t pool_samples() const { return epochs_.front().pool_samples(); }
    /// Key of all that is drawn for a source.
    std::uint64_t seed(std::int64_t source) const { return epochs_[static_cast<std::size_t>(source)].seed(); }
    /// Share of a source in the long run.
    double share(std::int64_t source) const;
    /// Of positions [0, positions), how many each source has.
    std::vector<std::int64_t> counts(std::int64_t positions) const;

  private:
    std::vector<EpochOrder> epochs_;
    std::vector<BlendOrder> blend_;  ///< none with one source
};

}  // namespace plimsoll
