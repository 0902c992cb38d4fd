#include "nn/kernels/convert_kernels.hpp"

#include "nn/kernels/vector_math.hpp"

namespace plimsoll::nn::kernels
{

PLIMSOLL_VECTORISED void widen(const Bf16* in, float* out, std::int64_t count)
{
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) { out[i] = in[i]; }
}

PLIMSOLL_VECTORISED void narrow(const float* in, Bf16* out, std::int64_t count)
{
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) { out[i] = Bf16(in[i]); }
}

PLIMSOLL_VECTORISED void narrow_sum(const float* in, const Bf16* bias, Bf16* out, std::int64_t count)
{
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) { out[i] = Bf16(in[i] + bias[i]); }
}

}  // namespace plimsoll::nn::kernels
