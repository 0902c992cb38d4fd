#include "nn/kernels/dropout_kernels.hpp"

#include <algorithm>
#include <cmath>

#include "nn/kernels/vector_math.hpp"

namespace plimsoll::nn::kernels
{

namespace
{

template<class T>
PLIMSOLL_INLINE void drop(const DropoutRule& rule, const std::uint32_t* words, const T* x, T* out, std::int64_t count)
{
    const std::uint32_t threshold = rule.threshold;
    const Wide<T> scale = Wide<T>(rule.scale);
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) { out[i] = T(words[i] >= threshold ? x[i] * scale : Wide<T>(0)); }
}

template<class T>
PLIMSOLL_INLINE void drop_add(const DropoutRule& rule, const std::uint32_t* words, const T* x, T* sum, std::int64_t count)
{
    const std::uint32_t threshold = rule.threshold;
    const Wide<T> scale = Wide<T>(rule.scale);
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) { sum[i] = T(x[i] + (words[i] >= threshold ? sum[i] * scale : Wide<T>(0))); }
}

}  // namespace

DropoutRule dropout_rule(double rate)
{
    DropoutRule rule;
    rule.threshold = static_cast<std::uint32_t>(std::min(std::round(rate * 0x1p32), 0x1p32 - 1));
    rule.scale = 1.0 / (1.0 - rate);
    return rule;
}

PLIMSOLL_VECTORISED void drop_vector(const DropoutRule& rule, const std::uint32_t* words, const float* x, float* out,
                                     std::int64_t count)
{
    drop(rule, words, x, out, count);
}
PLIMSOLL_VECTORISED void drop_vector(const DropoutRule& rule, const std::uint32_t* words, const double* x, double* out,
                                     std::int64_t count)
{
    drop(rule, words, x, out, count);
}
PLIMSOLL_VECTORISED void drop_vector(const DropoutRule& rule, const std::uint32_t* words, const Bf16* x, Bf16* out,
                                     std::int64_t count)
{
    drop(rule, words, x, out, count);
}

PLIMSOLL_VECTORISED void drop_and_add(const DropoutRule& rule, const std::uint32_t* words, const float* x, float* sum,
                                      std::int64_t count)
{
    drop_add(rule, words, x, sum, count);
}
PLIMSOLL_VECTORISED void drop_and_add(const DropoutRule& rule, const std::uint32_t* words, const double* x, double* sum,
                                      std::int64_t count)
{
    drop_add(rule, words, x, sum, count);
}
PLIMSOLL_VECTORISED void drop_and_add(const DropoutRule& rule, const std::uint32_t* words, const Bf16* x, Bf16* sum,
                                      std::int64_t count)
{
    drop_add(rule, words, x, sum, count);
}

}  // namespace plimsoll::nn::kernels
