#pragma once
/// What the vectorised kernels share. Torch-free; included by kernels/*.cpp only.
///
/// A kernel is a plain loop in an always-inline template, called by functions marked PLIMSOLL_VECTORISED: the
/// compiler makes one copy per instruction set and the loader picks. Reductions say `omp simd`, which allows their
/// reordering within one loop only; so a result depends on the machine's vector width, never on threads.

#include <bit>
#include <cstdint>
#include <type_traits>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) &&               \
    !defined(__SANITIZE_THREAD__)
// Not under sanitizers: the resolvers run before their run-time library is ready.
#define PLIMSOLL_VECTORISED __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define PLIMSOLL_VECTORISED
#endif

#define PLIMSOLL_INLINE inline __attribute__((always_inline))

namespace plimsoll::nn::kernels
{

/// exp(x), within 2 ulp; 0 below the smallest normal number; above 87 (708) exp(87): neither it nor 1 / (1 + it)
/// leaves the normal numbers; NaN stays.
/// Cody-Waite reduction to |r| <= ln(2)/2, Taylor polynomial (its remainder is below half an ulp), scaling by 2^n.
PLIMSOLL_INLINE float vector_exp(float x)
{
    constexpr float low = -87.33654f;
    constexpr float high = 87.0f;
    constexpr float shift = 12582912.0f;  // 1.5 * 2^23: the sum's low bits are the rounded integer
    const float clamped = x < low ? low : (x > high ? high : x);
    const float shifted = clamped * 1.44269504f + shift;
    const float n = shifted - shift;
    float r = clamped - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const float scale = std::bit_cast<float>((std::bit_cast<std::uint32_t>(shifted) + 127u) << 23);
    return x < low ? 0.0f : p * scale;
}

PLIMSOLL_INLINE double vector_exp(double x)
{
    constexpr double low = -708.3964185322641;
    constexpr double high = 708.0;
    constexpr double shift = 6755399441055744.0;  // 1.5 * 2^52
    const double clamped = x < low ? low : (x > high ? high : x);
    const double shifted = clamped * 1.4426950408889634 + shift;
    const double n = shifted - shift;
    double r = clamped - n * 6.93145751953125e-1;
    r = r - n * 1.42860682030941723212e-6;
    double p = 1.0 / 6227020800.0;
    p = p * r + 1.0 / 479001600.0;
    p = p * r + 1.0 / 39916800.0;
    p = p * r + 1.0 / 3628800.0;
    p = p * r + 1.0 / 362880.0;
    p = p * r + 1.0 / 40320.0;
    p = p * r + 1.0 / 5040.0;
    p = p * r + 1.0 / 720.0;
    p = p * r + 1.0 / 120.0;
    p = p * r + 1.0 / 24.0;
    p = p * r + 1.0 / 6.0;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    const double scale = std::bit_cast<double>((std::bit_cast<std::uint64_t>(shifted) + 1023u) << 52);
    return x < low ? 0.0 : p * scale;
}

template<class T>
struct Sigmoid
{
    T value;
    T complement;  ///< 1 - value, without its cancellation
};

/// 1 / (1 + exp(-x))
template<class T>
PLIMSOLL_INLINE Sigmoid<T> vector_sigmoid(T x)
{
    const T e = vector_exp(-x);
    const T value = T(1) / (T(1) + e);
    return {value, e * value};
}

}  // namespace plimsoll::nn::kernels
