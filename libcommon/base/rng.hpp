#pragma once
/// Counter-based random numbers and a keyed permutation: O(1) state, random access, the same bits on every machine.
///
/// Philox4x32-10 (Salmon et al., SC'11): block = f(key, counter). A stream is keyed by (seed, purpose), the counter says
/// which element; nothing depends on the order of calls, on threads or on the layout of a run.
/// Golden vectors: tests/unit/base/rng_test.cpp and docs/data_order.md.

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace plimsoll
{

/// Raw block function: four 32-bit words from a 128-bit counter and a 64-bit key.
std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key);

/// Purposes keep streams of one seed apart. Persistent values (checkpoints, data order): do not renumber.
enum class RngPurpose : std::uint32_t
{
    init = 1,
    dropout = 2,
    data_order = 3,
    split = 4,
    sampling = 5,
    test = 6,
};

/// A stream of one seed and purpose; `salt` separates further (hash of a tensor name, epoch, ...).
class CounterRng
{
  public:
    CounterRng(std::uint64_t seed, RngPurpose purpose, std::uint64_t salt = 0);

    /// 64 uniform bits for element `index`.
    std::uint64_t bits(std::uint64_t index) const;
    /// Uniform in [0, 1) with 53 bits.
    double uniform(std::uint64_t index) const;
    /// Standard normal for element `index` by Box-Muller on two 32-bit words in fp64: the same double everywhere libm is
    /// correctly rounded to within an ulp; cast to the parameter's type afterwards.
    double normal(std::uint64_t index) const;

  private:
    std::array<std::uint32_t, 2> key_{};
    std::uint64_t salt_ = 0;
};

/// 64-bit hash of a name, for salts (xxh64-like quality, fixed for ever; golden vectors in the tests).
std::uint64_t hash_name(std::string_view name);
/// Finaliser of SplitMix64: a bijection on 64 bits.
std::uint64_t mix64(std::uint64_t x);

/// A bijection on [0, size) that needs no table above 65,536 elements: order = "feistel8-v1".
/// size <= 2^16: Fisher-Yates table from the counter generator; else a balanced Feistel network of 8 rounds with cycle
/// walking. `size` 0 is allowed and has no elements.
class KeyedPermutation
{
  public:
    KeyedPermutation(std::uint64_t size, std::uint64_t seed, std::uint64_t stream, std::uint64_t epoch);

    std::uint64_t size() const { return size_; }
    /// Image of `index`. @pre index < size()
    std::uint64_t operator()(std::uint64_t index) const;

  private:
    std::uint64_t size_ = 0;
    int half_bits_ = 0;
    std::array<std::uint64_t, 8> round_keys_{};
    std::vector<std::uint16_t> table_;
};

}  // namespace plimsoll
