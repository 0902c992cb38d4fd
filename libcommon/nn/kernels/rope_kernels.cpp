#include "nn/kernels/rope_kernels.hpp"

#include "nn/kernels/vector_math.hpp"

namespace plimsoll::nn::kernels
{

namespace
{

template<class In, class Out, class W>
PLIMSOLL_INLINE void rotate(Rotation rotation, const In* source, std::int64_t source_stride, Out* target,
                            std::int64_t target_stride, std::int64_t heads, std::int64_t half, const W* cosine,
                            const W* sine)
{
    const W sign = rotation == Rotation::forward ? W(1) : W(-1);
    for (std::int64_t head = 0; head < heads; ++head)
    {
        const In* in = source + head * source_stride;
        Out* out = target + head * target_stride;
#pragma omp simd
        for (std::int64_t i = 0; i < half; ++i)
        {
            const W a = in[i];
            const W b = in[i + half];
            const W s = sign * sine[i];
            out[i] = Out(a * cosine[i] - b * s);
            out[i + half] = Out(b * cosine[i] + a * s);
        }
    }
}

}  // namespace

PLIMSOLL_VECTORISED void rotate_heads(Rotation rotation, const float* source, std::int64_t source_stride, float* target,
                                      std::int64_t target_stride, std::int64_t heads, std::int64_t half,
                                      const float* cosine, const float* sine)
{
    rotate(rotation, source, source_stride, target, target_stride, heads, half, cosine, sine);
}
PLIMSOLL_VECTORISED void rotate_heads(Rotation rotation, const double* source, std::int64_t source_stride,
                                      double* target, std::int64_t target_stride, std::int64_t heads, std::int64_t half,
                                      const double* cosine, const double* sine)
{
    rotate(rotation, source, source_stride, target, target_stride, heads, half, cosine, sine);
}
PLIMSOLL_VECTORISED void rotate_heads(Rotation rotation, const Bf16* source, std::int64_t source_stride, Bf16* target,
                                      std::int64_t target_stride, std::int64_t heads, std::int64_t half,
                                      const float* cosine, const float* sine)
{
    rotate(rotation, source, source_stride, target, target_stride, heads, half, cosine, sine);
}
PLIMSOLL_VECTORISED void rotate_heads(Rotation rotation, const float* source, std::int64_t source_stride, Bf16* target,
                                      std::int64_t target_stride, std::int64_t heads, std::int64_t half,
                                      const float* cosine, const float* sine)
{
    rotate(rotation, source, source_stride, target, target_stride, heads, half, cosine, sine);
}

}  // namespace plimsoll::nn::kernels
