#include "nn/kernels/rope_kernels.hpp"

#include "nn/kernels/vector_math.hpp"

namespace plimsoll::nn::kernels
{

namespace
{

template<class T>
PLIMSOLL_INLINE void rotate(Rotation rotation, const T* source, std::int64_t source_stride, T* target,
                            std::int64_t target_stride, std::int64_t heads, std::int64_t half, const T* cosine,
                            const T* sine)
{
    const T sign = rotation == Rotation::forward ? T(1) : T(-1);
    for (std::int64_t head = 0; head < heads; ++head)
    {
        const T* in = source + head * source_stride;
        T* out = target + head * target_stride;
#pragma omp simd
        for (std::int64_t i = 0; i < half; ++i)
        {
            const T a = in[i];
            const T b = in[i + half];
            const T s = sign * sine[i];
            out[i] = a * cosine[i] - b * s;
            out[i + half] = b * cosine[i] + a * s;
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

}  // namespace plimsoll::nn::kernels
