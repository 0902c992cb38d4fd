#pragma once
/// LayerNorm and RMSNorm over contiguous rows, on one thread. Torch-free; float, double, and bf16 with statistics and sums in float.

#include <cstdint>

#include "base/bf16.hpp"

namespace plimsoll::nn::kernels
{

/// Rows of `dim` elements. `mean` is nullptr for RMSNorm, `bias` where there is none; mean and rstd have one value
/// per row.
template<class T>
struct NormRows
{
    std::int64_t rows = 0;
    std::int64_t dim = 0;
    const T* x = nullptr;
    const T* weight = nullptr;
    const T* bias = nullptr;
    Wide<T>* mean = nullptr;
    Wide<T>* rstd = nullptr;
};

/// Writes y, mean and rstd.
void norm_forward(const NormRows<float>& in, double eps, float* y);
void norm_forward(const NormRows<double>& in, double eps, double* y);
void norm_forward(const NormRows<Bf16>& in, double eps, Bf16* y);
void norm_forward(const NormRows<Bf16>& in, double eps, float* y);

/// dx = (residual or 0) + gradient of x; `dx` may be `dy` or `residual`. Adds into dweight and (unless nullptr)
/// dbias.
template<class T>
struct NormGradient
{
    const T* dy = nullptr;
    const T* residual = nullptr;  ///< nullptr: none
    T* dx = nullptr;
    Wide<T>* dweight = nullptr;
    Wide<T>* dbias = nullptr;
};
void norm_backward(const NormRows<float>& in, const NormGradient<float>& gradient);
void norm_backward(const NormRows<double>& in, const NormGradient<double>& gradient);
void norm_backward(const NormRows<Bf16>& in, const NormGradient<Bf16>& gradient);

}  // namespace plimsoll::nn::kernels
