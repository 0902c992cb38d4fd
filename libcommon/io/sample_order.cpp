#include "io/sample_order.hpp"

#include <algorithm>
#include <numeric>

#include "base/error.hpp"

namespace plimsoll
{

namespace
{

/// Streams of keyed permutations and of the generator. Persistent: they are part of the order.
constexpr auto stream_samples = static_cast<std::uint64_t>(RngPurpose::data_order);
constexpr std::uint64_t stream_blocks = 7;
constexpr std::uint64_t stream_pools = 8;
constexpr std::uint64_t stream_short_block = 9;
constexpr auto purpose_blend = static_cast<RngPurpose>(10);

/// floor(x size / 2^64)
std::uint64_t scaled(std::uint64_t x, std::uint64_t size)
{
    return static_cast<std::uint64_t>((static_cast<unsigned __int128>(x) * size) >> 64);
}

std::uint64_t unsigned_of(std::int64_t x) { return static_cast<std::uint64_t>(x); }

}  // namespace

EpochOrder::EpochOrder(std::int64_t size, Shuffle::Kind kind, std::int64_t window, std::uint64_t seed)
    : size_(size),
      kind_(kind),
      block_(kind == Shuffle::Kind::window ? std::max<std::int64_t>(1, window / blocks_per_pool) : 0),
      seed_(seed)
{
    EXPECT(size > 0);
}

void EpochOrder::enter_epoch(std::int64_t epoch) const
{
    if (epoch == epoch_) { return; }
    const bool is_global = kind_ == Shuffle::Kind::global;
    permutation_ = KeyedPermutation(unsigned_of(is_global ? size_ : size_ / block_), seed_,
                                    is_global ? stream_samples : stream_blocks, unsigned_of(epoch));
    if (!is_global)
    {
        const std::uint64_t drawn = hash_numbers({seed_, stream_short_block, unsigned_of(epoch)});
        short_block_at_ = static_cast<std::int64_t>(scaled(drawn, unsigned_of(size_ / block_ + 1)));
        pool_ = -1;
    }
    epoch_ = epoch;
}

std::int64_t EpochOrder::in_pools(std::int64_t place) const
{
    const std::int64_t pool = place / pool_samples();
    const std::int64_t begin = pool * pool_samples();
    if (pool != pool_)
    {
        in_pool_ = KeyedPermutation(unsigned_of(std::min(pool_samples(), size_ - begin)), seed_, stream_pools,
                                    hash_numbers({unsigned_of(epoch_), unsigned_of(pool)}));
        pool_ = pool;
    }
    return begin + static_cast<std::int64_t>(in_pool_(unsigned_of(place - begin)));
}

std::int64_t EpochOrder::in_blocks(std::int64_t place) const
{
    const std::int64_t whole = size_ / block_;
    const std::int64_t short_size = size_ - whole * block_;
    const std::int64_t short_begin = short_block_at_ * block_;
    if (place >= short_begin && place < short_begin + short_size) { return whole * block_ + (place - short_begin); }
    const std::int64_t among_whole = place < short_begin ? place : place - short_size;
    const auto block = static_cast<std::int64_t>(permutation_(unsigned_of(among_whole / block_)));
    return block * block_ + among_whole % block_;
}

std::int64_t EpochOrder::sample_at(std::int64_t position) const
{
    EXPECT(position >= 0);
    const std::int64_t place = position % size_;
    if (kind_ == Shuffle::Kind::none) { return place; }
    enter_epoch(position / size_);
    if (kind_ == Shuffle::Kind::global) { return static_cast<std::int64_t>(permutation_(unsigned_of(place))); }
    return in_blocks(in_pools(place));
}

BlendOrder::BlendOrder(const std::vector<double>& weights, const std::vector<std::string>& names, std::uint64_t seed)
    : counts_(weights.size()),
      seed_(seed)
{
    EXPECT(!weights.empty() && names.size() == weights.size());
    VALIDATE(static_cast<std::int64_t>(weights.size()) <= block_positions, ConfigError,
             "{} data sources are too many (at most {})", weights.size(), block_positions);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    std::vector<std::size_t> by_remainder(weights.size());
    std::iota(by_remainder.begin(), by_remainder.end(), std::size_t{0});
    std::vector<double> remainders(weights.size());
    std::int64_t left = block_positions;
    for (std::size_t d = 0; d < weights.size(); ++d)
    {
        EXPECT(weights[d] > 0);
        const double exact = weights[d] / sum * static_cast<double>(block_positions);
        counts_[d] = static_cast<std::int64_t>(exact);
        remainders[d] = exact - static_cast<double>(counts_[d]);
        left -= counts_[d];
    }
    std::stable_sort(by_remainder.begin(), by_remainder.end(),
                     [&](std::size_t a, std::size_t b) { return remainders[a] > remainders[b]; });
    for (std::int64_t i = 0; i < left; ++i) { ++counts_[by_remainder[static_cast<std::size_t>(i)]]; }
    for (std::size_t d = 0; d < weights.size(); ++d)
    {
        VALIDATE(counts_[d] > 0, ConfigError,
                 "weight {} in [data.{}] is {:.2g} of all weights (less than 1 / {}: the source would never be read). "
                 "raise it, or "
                 "leave the source out",
                 weights[d], names[d], weights[d] / sum, 2 * block_positions);
    }
}

void BlendOrder::enter_block(std::int64_t block) const
{
    if (block == block_) { return; }
    struct Turn
    {
        std::uint64_t time;
        std::uint16_t source;
        std::uint32_t rank;
    };
    std::vector<Turn> turns;
    turns.reserve(block_positions);
    std::vector<std::uint32_t> words;
    for (std::size_t d = 0; d < counts_.size(); ++d)
    {
        words.resize(static_cast<std::size_t>(counts_[d]));
        CounterRng(seed_, purpose_blend, hash_numbers({unsigned_of(block), d})).fill_words(0, counts_[d], words.data());
        for (std::size_t k = 0; k < words.size(); ++k)
        {
            // Turn k of n falls into the k-th of n equal parts of the block; 62 bits hold it.
            const std::uint64_t time = (((std::uint64_t{k} << 32) | words[k]) << 14) / words.size();
            turns.push_back({time, static_cast<std::uint16_t>(d), static_cast<std::uint32_t>(k)});
        }
    }
    std::sort(turns.begin(), turns.end(),
              [](const Turn& a, const Turn& b)
              {
                  if (a.time != b.time) { return a.time < b.time; }
                  return a.source != b.source ? a.source < b.source : a.rank < b.rank;
              });
    sources_.resize(turns.size());
    ranks_.resize(turns.size());
    for (std::size_t i = 0; i < turns.size(); ++i)
    {
        sources_[i] = turns[i].source;
        ranks_[i] = turns[i].rank;
    }
    block_ = block;
}

BlendOrder::Place BlendOrder::at(std::int64_t position) const
{
    EXPECT(position >= 0);
    const std::int64_t block = position / block_positions;
    enter_block(block);
    const auto in = static_cast<std::size_t>(position % block_positions);
    Place place;
    place.source = sources_[in];
    place.position = block * counts_[sources_[in]] + ranks_[in];
    return place;
}

std::vector<std::int64_t> BlendOrder::counts(std::int64_t positions) const
{
    const std::int64_t whole = positions / block_positions;
    std::vector<std::int64_t> sum = counts_;
    for (std::int64_t& count : sum) { count *= whole; }
    const auto rest = static_cast<std::size_t>(positions % block_positions);
    if (rest > 0) { enter_block(whole); }
    for (std::size_t i = 0; i < rest; ++i) { ++sum[sources_[i]]; }
    return sum;
}

SampleOrder::SampleOrder(const std::vector<SampleSource>& sources, Shuffle::Kind kind, std::int64_t window,
                         std::uint64_t seed)
{
    EXPECT(!sources.empty());
    std::vector<double> weights;
    std::vector<std::string> names;
    for (const SampleSource& source : sources)
    {
        weights.push_back(source.weight);
        names.push_back(source.name);
        const bool alone = sources.size() == 1;
        epochs_.emplace_back(source.size, kind, window, alone ? seed : hash_numbers({seed, hash_name(source.name)}));
    }
    if (sources.size() > 1) { blend_.emplace_back(weights, names, seed); }
}

SampleId SampleOrder::at(std::int64_t position) const
{
    EXPECT(position >= 0);
    BlendOrder::Place place;
    place.position = position;
    if (!blend_.empty()) { place = blend_.front().at(position); }
    const EpochOrder& order = epochs_[static_cast<std::size_t>(place.source)];
    SampleId id;
    id.source = place.source;
    id.epoch = place.position / order.size();
    id.sample = order.sample_at(place.position);
    return id;
}

double SampleOrder::share(std::int64_t source) const
{
    if (blend_.empty()) { return 1; }
    return static_cast<double>(blend_.front().in_block(source)) / static_cast<double>(BlendOrder::block_positions);
}

std::vector<std::int64_t> SampleOrder::counts(std::int64_t positions) const
{
    return blend_.empty() ? std::vector<std::int64_t>{positions} : blend_.front().counts(positions);
}

}  // namespace plimsoll
