#include "nn/kernels/optimizer_kernels.hpp"

#include <cmath>

#include "nn/kernels/vector_math.hpp"

namespace plimsoll::nn::kernels
{

namespace
{

enum class Gradient
{
    keep,
    zero
};

template<Gradient after, class T>
PLIMSOLL_INLINE void update(const AdamWFactors& factors, T* __restrict param, T* __restrict grad, T* __restrict moment1,
                            T* __restrict moment2, std::int64_t count)
{
    const T grad_scale = T(factors.grad_scale);
    const T decay = T(factors.decay);
    const T one_minus_beta1 = T(1.0 - factors.beta1);
    const T beta2 = T(factors.beta2);
    const T one_minus_beta2 = T(1.0 - factors.beta2);
    const T step_size = T(factors.step_size);
    const T inverse_root = T(factors.inverse_root);
    const T eps = T(factors.eps);
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i)
    {
        const T g = grad[i] * grad_scale;
        const T m = moment1[i] + one_minus_beta1 * (g - moment1[i]);
        const T v = beta2 * moment2[i] + one_minus_beta2 * (g * g);
        moment1[i] = m;
        moment2[i] = v;
        param[i] = param[i] * decay - step_size * (m / (std::sqrt(v) * inverse_root + eps));
        if constexpr (after == Gradient::zero) { grad[i] = T(0); }
    }
}

/// Four sums side by side: one would wait for its own addition.
template<class T>
PLIMSOLL_INLINE double squares(const T* data, std::int64_t count)
{
    const std::int64_t quarter = count / 4;
    double sum0 = 0, sum1 = 0, sum2 = 0, sum3 = 0;
#pragma omp simd reduction(+ : sum0, sum1, sum2, sum3)
    for (std::int64_t i = 0; i < quarter; ++i)
    {
        const double a = data[i];
        const double b = data[i + quarter];
        const double c = data[i + 2 * quarter];
        const double d = data[i + 3 * quarter];
        sum0 += a * a;
        sum1 += b * b;
        sum2 += c * c;
        sum3 += d * d;
    }
    double rest = 0;
    for (std::int64_t i = 4 * quarter; i < count; ++i) { rest += double(data[i]) * double(data[i]); }
    return ((sum0 + sum1) + (sum2 + sum3)) + rest;
}

}  // namespace

PLIMSOLL_VECTORISED void adamw_range(const AdamWFactors& factors, float* param, float* grad, float* moment1,
                                     float* moment2, std::int64_t count)
{
    update<Gradient::keep>(factors, param, grad, moment1, moment2, count);
}
PLIMSOLL_VECTORISED void adamw_range(const AdamWFactors& factors, double* param, double* grad, double* moment1,
                                     double* moment2, std::int64_t count)
{
    update<Gradient::keep>(factors, param, grad, moment1, moment2, count);
}

PLIMSOLL_VECTORISED void adamw_range_zeroing(const AdamWFactors& factors, float* param, float* grad, float* moment1,
                                             float* moment2, std::int64_t count)
{
    update<Gradient::zero>(factors, param, grad, moment1, moment2, count);
}
PLIMSOLL_VECTORISED void adamw_range_zeroing(const AdamWFactors& factors, double* param, double* grad, double* moment1,
                                             double* moment2, std::int64_t count)
{
    update<Gradient::zero>(factors, param, grad, moment1, moment2, count);
}

PLIMSOLL_VECTORISED double sum_of_squares_range(const float* data, std::int64_t count) { return squares(data, count); }
PLIMSOLL_VECTORISED double sum_of_squares_range(const double* data, std::int64_t count) { return squares(data, count); }

}  // namespace plimsoll::nn::kernels
