#pragma once
/// LayerNorm and RMSNorm over contiguous rows, on one thread. Torch-free; float and double.

#include <cstdint>

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
    T* mean = nullptr;
    T* rstd = nullptr;
};

/// Writes y, mean and rstd.
void norm_forward(const NormRows<float>& in, double eps, float* y);
void norm_forward(const NormRows<double>& in, double eps, double* y);

/// dx = (residual or 0) + gradient of x; `dx` may be `dy` or `residual`. Adds into dweight and (unless nullptr)
/// dbias.
template<class T>
struct NormGradient
{
    const T* dy = nullptr;
    const T* residual = nullptr;  ///< nullptr: none
    T* dx = nullptr;
    T* dweight = nullptr;
    T* dbias = nullptr;
};
void norm_backward(const NormRows<float>& in, const NormGradient<float>& gradient);
void norm_backward(const NormRows<double>& in, const NormGradient<double>& gradient);

}  // namespace plimsoll::nn::kernels
