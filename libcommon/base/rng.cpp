#include "base/rng.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/error.hpp"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace plimsoll
{
namespace
{

constexpr std::uint64_t golden_gamma = 0x9e3779b97f4a7c15U;
// Normals draw from blocks of their own: the top bit of the counter's element number.
constexpr std::uint32_t normal_blocks = 0x80000000U;
// And words from others: the top two bits.
constexpr std::uint32_t word_blocks = 0xc0000000U;

std::uint64_t absorb(std::uint64_t hash, std::uint64_t value)
{
    return mix64((hash ^ value) + golden_gamma);
}

constexpr std::array<std::uint32_t, 2> words_of(std::uint64_t x)
{
    return {{static_cast<std::uint32_t>(x), static_cast<std::uint32_t>(x >> 32)}};
}

constexpr std::uint32_t philox_m0 = 0xD2511F53U;
constexpr std::uint32_t philox_m1 = 0xCD9E8D57U;
constexpr std::uint32_t philox_w0 = 0x9E3779B9U;
constexpr std::uint32_t philox_w1 = 0xBB67AE85U;

inline void philox_round(std::uint32_t& c0, std::uint32_t& c1, std::uint32_t& c2, std::uint32_t& c3, std::uint32_t k0,
                         std::uint32_t k1)
{
    const std::uint64_t p0 = std::uint64_t{philox_m0} * c0;
    const std::uint64_t p1 = std::uint64_t{philox_m1} * c2;
    const std::uint32_t n0 = static_cast<std::uint32_t>(p1 >> 32) ^ c1 ^ k0;
    const std::uint32_t n2 = static_cast<std::uint32_t>(p0 >> 32) ^ c3 ^ k1;
    c1 = static_cast<std::uint32_t>(p1);
    c3 = static_cast<std::uint32_t>(p0);
    c0 = n0;
    c2 = n2;
}

inline double u32_to_double(std::uint64_t x)
{
    // x < 2^52 placed into the mantissa of 2^52: exact, and unlike a conversion it vectorises everywhere.
    return std::bit_cast<double>(0x4330000000000000U | x) - 0x1p52;
}

// Natural logarithm of a normal x > 0: x = 2^k m with m in [sqrt(1/2), sqrt(2)), log m = 2 atanh(f / (2 + f)) by the
// minimax polynomial of fdlibm's e_log.c (coefficients only); error below one ulp.
inline double log_fixed(double x)
{
    constexpr std::uint64_t sqrt_half = 0x3fe6a09e667f3bcdU;
    const std::uint64_t bits = std::bit_cast<std::uint64_t>(x);
    const std::uint64_t biased = (bits - sqrt_half + 0x3ff0000000000000U) >> 52;
    const double k = u32_to_double(biased) - 1023.0;
    const double f = std::bit_cast<double>(bits - ((biased - 1023) << 52)) - 1.0;
    const double s = f / (2.0 + f);
    const double z = s * s;
    double p = 1.479819860511658591e-01;
    p = p * z + 1.531383769920937332e-01;
    p = p * z + 1.818357216161805012e-01;
    p = p * z + 2.222219843214978396e-01;
    p = p * z + 2.857142874366239149e-01;
    p = p * z + 3.999999999940941908e-01;
    p = p * z + 6.666666666666735130e-01;
    p = p * z;
    const double half_square = 0.5 * f * f;
    const double low = s * (half_square + p) + k * 1.90821492927058770002e-10;
    return k * 6.93147180369123816490e-01 - ((half_square - low) - f);
}

// Two normals from two words. The angle 2 pi w1 / 2^32 is cut exactly, in integers, into quadrant and a rest within
// [-pi/4, pi/4); polynomials are those of fdlibm's k_sin.c and k_cos.c (coefficients only).
inline void box_muller(std::uint32_t w0, std::uint32_t w1, double& first, double& second)
{
    const double radius = std::sqrt(-2.0 * log_fixed((u32_to_double(w0) + 0.5) * 0x1p-32));
    const std::uint32_t shifted = w1 + 0x20000000U;
    const std::uint32_t quadrant = shifted >> 30;
    const double x = (u32_to_double(shifted & 0x3fffffffU) - 0x1p29) * (6.283185307179586476925 * 0x1p-32);
    const double z = x * x;
    double p = 1.58969099521155010221e-10;
    p = p * z + -2.50507602534068634195e-08;
    p = p * z + 2.75573137070700676789e-06;
    p = p * z + -1.98412698298579493134e-04;
    p = p * z + 8.33333333332248946124e-03;
    p = p * z + -1.66666666666666324348e-01;
    const double sine = x + x * (z * p);
    double q = -1.13596475577881948265e-11;
    q = q * z + 2.08757232129817482790e-09;
    q = q * z + -2.75573143513906633035e-07;
    q = q * z + 2.48015872894767294178e-05;
    q = q * z + -1.38888888888741095749e-03;
    q = q * z + 4.16666666666666019037e-02;
    const double cosine = (1.0 - 0.5 * z) + (z * z) * q;
    // Selection and sign by bits, so that no branch stands in the loop: quadrants turn (c, s) to (-s, c), (-c, -s), (s, -c).
    const std::uint64_t odd = std::uint64_t{0} - (quadrant & 1U);
    const std::uint64_t cos_bits = std::bit_cast<std::uint64_t>(cosine);
    const std::uint64_t sin_bits = std::bit_cast<std::uint64_t>(sine);
    const std::uint64_t swap = (cos_bits ^ sin_bits) & odd;
    const std::uint64_t cos_sign = std::uint64_t{(quadrant + 1U) & 2U} << 62;
    const std::uint64_t sin_sign = std::uint64_t{quadrant & 2U} << 62;
    first = radius * std::bit_cast<double>(cos_bits ^ swap ^ cos_sign);
    second = radius * std::bit_cast<double>(sin_bits ^ swap ^ sin_sign);
}

// Normals of 4 * blocks_at_once consecutive elements; words in separate arrays, so that every loop vectorises.
constexpr int blocks_at_once = 32;
struct WordBatch
{
    std::uint32_t word[4][blocks_at_once];
};
struct NormalBatch : WordBatch
{
    double lane[4][blocks_at_once];
    double value[4 * blocks_at_once]; ///< in element order
};

inline __attribute__((always_inline)) void draw_words_body(std::uint64_t first_block, std::uint32_t kind,
                                                           std::uint64_t salt, std::uint32_t k0, std::uint32_t k1,
                                                           WordBatch& batch)
{
    for (int i = 0; i < blocks_at_once; ++i)
    {
        const std::uint64_t block = first_block + static_cast<std::uint64_t>(i);
        batch.word[0][i] = static_cast<std::uint32_t>(block);
        batch.word[1][i] = static_cast<std::uint32_t>(block >> 32) | kind;
        batch.word[2][i] = static_cast<std::uint32_t>(salt);
        batch.word[3][i] = static_cast<std::uint32_t>(salt >> 32);
    }
    for (int round = 0; round < 10; ++round)
    {
        for (int i = 0; i < blocks_at_once; ++i)
        {
            philox_round(batch.word[0][i], batch.word[1][i], batch.word[2][i], batch.word[3][i], k0, k1);
        }
        k0 += philox_w0;
        k1 += philox_w1;
    }
}

inline __attribute__((always_inline)) void draw_batch_body(std::uint64_t first_block, std::uint64_t salt, std::uint32_t k0,
                                                           std::uint32_t k1, NormalBatch& batch)
{
    draw_words_body(first_block, normal_blocks, salt, k0, k1, batch);
    for (int pair = 0; pair < 4; pair += 2)
    {
        for (int i = 0; i < blocks_at_once; ++i)
        {
            box_muller(batch.word[pair][i], batch.word[pair + 1][i], batch.lane[pair][i], batch.lane[pair + 1][i]);
        }
    }
    for (int i = 0; i < blocks_at_once; ++i)
    {
        for (int lane = 0; lane < 4; ++lane) { batch.value[4 * i + lane] = batch.lane[lane][i]; }
    }
}

void draw_batch_base(std::uint64_t first_block, std::uint64_t salt, std::uint32_t k0, std::uint32_t k1, NormalBatch& batch)
{
    draw_batch_body(first_block, salt, k0, k1, batch);
}

/// The words of a batch in element order.
inline __attribute__((always_inline)) void ordered_words_body(std::uint64_t first_block, std::uint64_t salt, std::uint32_t k0,
                                                              std::uint32_t k1, std::uint32_t* out)
{
    WordBatch batch;
    draw_words_body(first_block, word_blocks, salt, k0, k1, batch);
    for (int i = 0; i < blocks_at_once; ++i)
    {
        for (int lane = 0; lane < 4; ++lane) { out[4 * i + lane] = batch.word[lane][i]; }
    }
}

void ordered_words_base(std::uint64_t first_block, std::uint64_t salt, std::uint32_t k0, std::uint32_t k1, std::uint32_t* out)
{
    ordered_words_body(first_block, salt, k0, k1, out);
}

#if defined(__x86_64__)
/// Four blocks, one in each 64-bit lane. Only the lower halves count: the multiplication reads no others.
struct FourBlocks
{
    __m256i c0, c1, c2, c3;
};

__attribute__((target("avx2"), always_inline)) inline void philox_round_avx2(FourBlocks& b, __m256i k0, __m256i k1)
{
    const __m256i p0 = _mm256_mul_epu32(b.c0, _mm256_set1_epi64x(philox_m0));
    const __m256i p1 = _mm256_mul_epu32(b.c2, _mm256_set1_epi64x(philox_m1));
    b.c0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p1, 32), b.c1), k0);
    b.c2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p0, 32), b.c3), k1);
    b.c1 = p1;
    b.c3 = p0;
}

/// Lanes to 16 words in element order.
__attribute__((target("avx2"), always_inline)) inline void store_words_avx2(const FourBlocks& b, std::uint32_t* out)
{
    constexpr int odd_words = 0xaa;
    const __m256i first = _mm256_blend_epi32(b.c0, _mm256_slli_epi64(b.c1, 32), odd_words);
    const __m256i second = _mm256_blend_epi32(b.c2, _mm256_slli_epi64(b.c3, 32), odd_words);
    const __m256i even = _mm256_unpacklo_epi64(first, second);  // blocks 0 and 2
    const __m256i odd = _mm256_unpackhi_epi64(first, second);   // 1 and 3
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + 8), _mm256_permute2x128_si256(even, odd, 0x31));
}

__attribute__((target("avx2"), always_inline)) inline __m256i all(std::uint64_t x)
{
    return _mm256_set1_epi64x(static_cast<long long>(x));
}

// By hand: the compiler keeps no batch in registers from round to round, and is four times slower.
__attribute__((target("avx2"))) void ordered_words_avx2(std::uint64_t first_block, std::uint64_t salt, std::uint32_t k0,
                                                        std::uint32_t k1, std::uint32_t* out)
{
    constexpr int groups = 2;  // in flight together, since a multiplication takes five cycles
    const __m256i steps = _mm256_setr_epi64x(0, 1, 2, 3);
    for (int i = 0; i < blocks_at_once; i += 4 * groups)
    {
        FourBlocks blocks[groups];
        for (int g = 0; g < groups; ++g)
        {
            const __m256i block = _mm256_add_epi64(all(first_block + static_cast<std::uint64_t>(i + 4 * g)), steps);
            blocks[g].c0 = block;
            blocks[g].c1 = _mm256_or_si256(_mm256_srli_epi64(block, 32), all(word_blocks));
            blocks[g].c2 = all(salt);
            blocks[g].c3 = all(salt >> 32);
        }
        std::uint32_t key0 = k0, key1 = k1;
        for (int round = 0; round < 10; ++round)
        {
            const __m256i now0 = all(key0), now1 = all(key1);
            for (int g = 0; g < groups; ++g) { philox_round_avx2(blocks[g], now0, now1); }
            key0 += philox_w0;
            key1 += philox_w1;
        }
        for (int g = 0; g < groups; ++g) { store_words_avx2(blocks[g], out + 4 * (i + 4 * g)); }
    }
}

__attribute__((target("avx2"))) void draw_batch_avx2(std::uint64_t first_block, std::uint64_t salt, std::uint32_t k0,
                                                     std::uint32_t k1, NormalBatch& batch)
{
    draw_batch_body(first_block, salt, k0, k1, batch);
}
#endif

using DrawBatch = void (*)(std::uint64_t, std::uint64_t, std::uint32_t, std::uint32_t, NormalBatch&);

using OrderedWords = void (*)(std::uint64_t, std::uint64_t, std::uint32_t, std::uint32_t, std::uint32_t*);

OrderedWords best_ordered_words()
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) { return ordered_words_avx2; }
#endif
    return ordered_words_base;
}

DrawBatch best_draw_batch()
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) { return draw_batch_avx2; }
#endif
    return draw_batch_base;
}

template<class T>
void fill_normal_impl(std::array<std::uint32_t, 2> key, std::uint64_t salt, std::uint64_t first_index, std::int64_t num,
                      double stddev, T* out)
{
    const DrawBatch draw = best_draw_batch();
    NormalBatch batch;
    std::int64_t done = 0;
    while (done < num)
    {
        const std::uint64_t index = first_index + static_cast<std::uint64_t>(done);
        const int skip = static_cast<int>(index & 3U);
        draw(index >> 2, salt, key[0], key[1], batch);
        const int take = static_cast<int>(std::min<std::int64_t>(num - done, 4 * blocks_at_once - skip));
        for (int i = 0; i < take; ++i)
        {
            out[done + i] = static_cast<T>(stddev * batch.value[skip + i]);
        }
        done += take;
    }
}

}  // namespace

std::array<std::uint32_t, 4> philox4x32_10(std::array<std::uint32_t, 4> counter, std::array<std::uint32_t, 2> key)
{
    for (int round = 0; round < 10; ++round)
    {
        philox_round(counter[0], counter[1], counter[2], counter[3], key[0], key[1]);
        key[0] += philox_w0;
        key[1] += philox_w1;
    }
    return counter;
}

CounterRng::CounterRng(std::uint64_t seed, RngPurpose purpose, std::uint64_t salt)
    : key_(words_of(absorb(absorb(0, seed), static_cast<std::uint64_t>(purpose)))), salt_(salt)
{
}

std::uint64_t CounterRng::bits(std::uint64_t index) const
{
    const std::array<std::uint32_t, 2> low = words_of(index);
    const std::array<std::uint32_t, 2> high = words_of(salt_);
    const std::array<std::uint32_t, 4> block = philox4x32_10({{low[0], low[1], high[0], high[1]}}, key_);
    return block[0] | std::uint64_t{block[1]} << 32;
}

double CounterRng::uniform(std::uint64_t index) const
{
    return static_cast<double>(bits(index) >> 11) * 0x1p-53;
}

double CounterRng::normal(std::uint64_t index) const
{
    const std::array<std::uint32_t, 2> low = words_of(index >> 2);
    const std::array<std::uint32_t, 2> high = words_of(salt_);
    const std::array<std::uint32_t, 4> block = philox4x32_10({{low[0], low[1] | normal_blocks, high[0], high[1]}}, key_);
    const std::size_t pair = index & 2U;
    double first = 0;
    double second = 0;
    box_muller(block[pair], block[pair + 1], first, second);
    return (index & 1U) == 0 ? first : second;
}

void CounterRng::fill_normal(std::uint64_t first_index, std::int64_t num, double stddev, float* out) const
{
    fill_normal_impl(key_, salt_, first_index, num, stddev, out);
}

void CounterRng::fill_normal(std::uint64_t first_index, std::int64_t num, double stddev, double* out) const
{
    fill_normal_impl(key_, salt_, first_index, num, stddev, out);
}

std::uint32_t CounterRng::word(std::uint64_t index) const
{
    const std::array<std::uint32_t, 2> low = words_of(index >> 2);
    const std::array<std::uint32_t, 2> high = words_of(salt_);
    return philox4x32_10({{low[0], low[1] | word_blocks, high[0], high[1]}}, key_)[index & 3U];
}

void CounterRng::fill_words(std::uint64_t first_index, std::int64_t num, std::uint32_t* out) const
{
    constexpr std::int64_t batch_words = 4 * blocks_at_once;
    const OrderedWords draw = best_ordered_words();
    std::int64_t done = 0;
    while (done < num)
    {
        const std::uint64_t index = first_index + static_cast<std::uint64_t>(done);
        const std::int64_t skip = static_cast<std::int64_t>(index & 3U);
        if (skip == 0 && num - done >= batch_words)
        {
            draw(index >> 2, salt_, key_[0], key_[1], out + done);
            done += batch_words;
            continue;
        }
        std::uint32_t words[batch_words];
        draw(index >> 2, salt_, key_[0], key_[1], words);
        const std::int64_t take = std::min(num - done, batch_words - skip);
        std::copy(words + skip, words + skip + take, out + done);
        done += take;
    }
}

std::uint64_t hash_numbers(std::initializer_list<std::uint64_t> numbers)
{
    std::uint64_t hash = 0;
    for (const std::uint64_t number : numbers) { hash = absorb(hash, number); }
    return hash;
}

std::uint64_t hash_name(std::string_view name)
{
    std::uint64_t hash = 0xcbf29ce484222325U;
    for (const char c : name)
    {
        hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3U;
    }
    return mix64(hash);
}

KeyedPermutation::KeyedPermutation(std::uint64_t size, std::uint64_t seed, std::uint64_t stream, std::uint64_t epoch)
    : size_(size)
{
    EXPECT(size <= std::uint64_t{1} << 62);
    const std::uint64_t key = absorb(absorb(absorb(0, seed), stream), epoch);
    if (size <= max_table_size)
    {
        table_.resize(size);
        for (std::uint64_t i = 0; i < size; ++i) { table_[i] = static_cast<std::uint16_t>(i); }
        for (std::uint64_t i = size; i-- > 1;)
        {
            const auto block = philox4x32_10({{static_cast<std::uint32_t>(i), 0, 0, 0}}, words_of(key));
            // floor(random / 2^64 * (i + 1)) from two 32-bit halves: a bias below 2^-47, and no rejection loop to specify.
            const std::uint64_t carry = (block[0] * (i + 1)) >> 32;
            const std::uint64_t j = (block[1] * (i + 1) + carry) >> 32;
            std::swap(table_[i], table_[j]);
        }
        return;
    }
    half_bits_ = (std::bit_width(size - 1) + 1) / 2;
    for (std::size_t round = 0; round < round_keys_.size(); ++round)
    {
        round_keys_[round] = mix64(key + (round + 1) * golden_gamma);
    }
}

std::uint64_t KeyedPermutation::operator()(std::uint64_t index) const
{
    EXPECT(index < size_);
    if (size_ <= max_table_size) { return table_[index]; }
    const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
    do
    {
        std::uint64_t left = index >> half_bits_;
        std::uint64_t right = index & mask;
        for (const std::uint64_t key : round_keys_)
        {
            const std::uint64_t next = left ^ (mix64(right ^ key) & mask);
            left = right;
            right = next;
        }
        index = left << half_bits_ | right;
    } while (index >= size_);
    return index;
}

}  // namespace plimsoll
