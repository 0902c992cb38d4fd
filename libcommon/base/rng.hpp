#pragma once
/// Counter-based random numbers and a keyed permutation: O(1) state, random access, the same bits on every machine.
///
/// Philox4x32-10 (Salmon et al., SC'11): block = f(key, counter). A stream is keyed by (seed, purpose), the counter says
/// which element; nothing depends on the order of calls, on threads or on the layout of a run.
/// Specified to the bit in docs/data_order.md; golden vectors in tests/unit/base/golden/data_order.json.
///
/// Everything here is immutable after construction: any number of threads may call.

#include <array>
#include <cstdint>
#include <initializer_list>
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

    /// 64 uniform bits for element `index`. @pre index < 2^63
    std::uint64_t bits(std::uint64_t index) const;
    /// Uniform in [0, 1) with 53 bits: the upper 53 of bits(index).
    double uniform(std::uint64_t index) const;
    /// Standard normal for element `index`: Box-Muller on two 32-bit words in fp64 (|value| < 6.8), four elements to a block.
    /// Logarithm, sine and cosine are own polynomials of IEEE basic operations without fused multiply-add, so that the bits
    /// depend on no libm, compiler or vector width. Independent of bits(). @pre index < 2^63
    double normal(std::uint64_t index) const;
    /// out[i] = T(stddev * normal(first_index + i)) for i < num, many times faster than one by one.
    void fill_normal(std::uint64_t first_index, std::int64_t num, double stddev, float* out) const;
    void fill_normal(std::uint64_t first_index, std::int64_t num, double stddev, double* out) const;
    /// 32 uniform bits for element `index`, four elements to a block: the cheapest. Independent of bits() and normal().
    /// @pre index < 2^63
    std::uint32_t word(std::uint64_t index) const;
    /// out[i] = word(first_index + i) for i < num.
    void fill_words(std::uint64_t first_index, std::int64_t num, std::uint32_t* out) const;

  private:
    std::array<std::uint32_t, 2> key_{};
    std::uint64_t salt_ = 0;
};

/// 64-bit hash of numbers in their order, for salts: hash() of docs/data_order.md. Fixed for ever.
std::uint64_t hash_numbers(std::initializer_list<std::uint64_t> numbers);

/// 64-bit hash of a name, for salts: FNV-1a finished by mix64(). Fixed for ever.
std::uint64_t hash_name(std::string_view name);

/// Finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA'14; variant 13 of Stafford): a bijection on 64 bits, 0 -> 0.
constexpr std::uint64_t mix64(std::uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
}

/// A bijection on [0, size) that needs no table above 65,536 elements: order = "feistel8-v1".
/// size <= 2^16: Fisher-Yates table from the counter generator; else a balanced Feistel network of 8 rounds with cycle
/// walking (fewer than four evaluations on average). The key is a hash of (seed, stream, epoch), never a sum of them.
/// `size` 0 is allowed and has no elements.
class KeyedPermutation
{
  public:
    static constexpr std::uint64_t max_table_size = std::uint64_t{1} << 16;

    /// @pre size <= 2^62
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
