#include "nn/kernels/norm_kernels.hpp"

#include <cmath>

#include "nn/kernels/vector_math.hpp"

namespace plimsoll::nn::kernels
{

namespace
{

template<class T>
PLIMSOLL_INLINE Wide<T> row_mean(const T* x, std::int64_t dim)
{
    Wide<T> sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t d = 0; d < dim; ++d) { sum += x[d]; }
    return sum / Wide<T>(dim);
}

/// Mean of (x - center)^2: two passes, since mean(x^2) - mean^2 cancels where the mean is large.
template<class T>
PLIMSOLL_INLINE Wide<T> row_mean_square(const T* x, std::int64_t dim, Wide<T> center)
{
    Wide<T> sum = 0;
#pragma omp simd reduction(+ : sum)
    for (std::int64_t d = 0; d < dim; ++d) { sum += (x[d] - center) * (x[d] - center); }
    return sum / Wide<T>(dim);
}

template<class T, class Out>
PLIMSOLL_INLINE void forward_rows(const NormRows<T>& in, double eps, Out* y)
{
    using W = Wide<T>;
    for (std::int64_t row = 0; row < in.rows; ++row)
    {
        const T* x = in.x + row * in.dim;
        Out* out = y + row * in.dim;
        const W mean = in.mean != nullptr ? row_mean(x, in.dim) : W(0);
        const W rstd = W(1) / std::sqrt(row_mean_square(x, in.dim, mean) + W(eps));
        if (in.mean != nullptr) { in.mean[row] = mean; }
        in.rstd[row] = rstd;
        if (in.bias != nullptr)
        {
#pragma omp simd
            for (std::int64_t d = 0; d < in.dim; ++d) { out[d] = Out((x[d] - mean) * rstd * in.weight[d] + in.bias[d]); }
        }
        else
        {
#pragma omp simd
            for (std::int64_t d = 0; d < in.dim; ++d) { out[d] = Out((x[d] - mean) * rstd * in.weight[d]); }
        }
    }
}

/// With g = dy * weight and n the row's length: dx = rstd (g - [mean(g)] - xhat mean(g xhat)), [] for LayerNorm only.
template<class T>
PLIMSOLL_INLINE void backward_rows(const NormRows<T>& in, const NormGradient<T>& gradient)
{
    using W = Wide<T>;
    for (std::int64_t row = 0; row < in.rows; ++row)
    {
        const T* x = in.x + row * in.dim;
        const T* dy = gradient.dy + row * in.dim;
        T* dx = gradient.dx + row * in.dim;
        const T* weight = in.weight;
        W* dweight = gradient.dweight;
        W* dbias = gradient.dbias;
        const W mean = in.mean != nullptr ? in.mean[row] : W(0);
        const W rstd = in.rstd[row];
        W sum_g = 0;
        W sum_g_xhat = 0;
#pragma omp simd reduction(+ : sum_g, sum_g_xhat)
        for (std::int64_t d = 0; d < in.dim; ++d)
        {
            const W g = W(dy[d]) * weight[d];
            sum_g += g;
            sum_g_xhat += g * ((x[d] - mean) * rstd);
        }
        const W mean_g = in.mean != nullptr ? sum_g / W(in.dim) : W(0);
        const W mean_g_xhat = sum_g_xhat / W(in.dim);
        if (dbias != nullptr)
        {
#pragma omp simd
            for (std::int64_t d = 0; d < in.dim; ++d) { dbias[d] += dy[d]; }
        }
        const T* residual = gradient.residual != nullptr ? gradient.residual + row * in.dim : nullptr;
        if (residual != nullptr)
        {
#pragma omp simd
            for (std::int64_t d = 0; d < in.dim; ++d)
            {
                const W xhat = (x[d] - mean) * rstd;
                const W g = dy[d];
                dweight[d] += g * xhat;
                dx[d] = T(residual[d] + rstd * (g * weight[d] - mean_g - xhat * mean_g_xhat));
            }
        }
        else
        {
#pragma omp simd
            for (std::int64_t d = 0; d < in.dim; ++d)
            {
                const W xhat = (x[d] - mean) * rstd;
                const W g = dy[d];
                dweight[d] += g * xhat;
                dx[d] = T(rstd * (g * weight[d] - mean_g - xhat * mean_g_xhat));
            }
        }
    }
}

}  // namespace

PLIMSOLL_VECTORISED void norm_forward(const NormRows<float>& in, double eps, float* y) { forward_rows(in, eps, y); }
PLIMSOLL_VECTORISED void norm_forward(const NormRows<double>& in, double eps, double* y) { forward_rows(in, eps, y); }
PLIMSOLL_VECTORISED void norm_forward(const NormRows<Bf16>& in, double eps, Bf16* y) { forward_rows(in, eps, y); }
PLIMSOLL_VECTORISED void norm_forward(const NormRows<Bf16>& in, double eps, float* y) { forward_rows(in, eps, y); }

PLIMSOLL_VECTORISED void norm_backward(const NormRows<float>& in, const NormGradient<float>& gradient)
{
    backward_rows(in, gradient);
}
PLIMSOLL_VECTORISED void norm_backward(const NormRows<double>& in, const NormGradient<double>& gradient)
{
    backward_rows(in, gradient);
}
PLIMSOLL_VECTORISED void norm_backward(const NormRows<Bf16>& in, const NormGradient<Bf16>& gradient)
{
    backward_rows(in, gradient);
}

}  // namespace plimsoll::nn::kernels
