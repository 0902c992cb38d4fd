#include "nn/kernels/row_kernels.hpp"

#include "nn/kernels/vector_math.hpp"

namespace plimsoll::nn::kernels
{

namespace
{

template<class T>
PLIMSOLL_INLINE void add_all_rows(const T* x, std::int64_t rows, std::int64_t columns, std::int64_t stride, Wide<T>* sum)
{
    for (std::int64_t row = 0; row < rows; ++row)
    {
        const T* in = x + row * stride;
#pragma omp simd
        for (std::int64_t c = 0; c < columns; ++c) { sum[c] += in[c]; }
    }
}

template<class T>
PLIMSOLL_INLINE void add_partials(const T* x, std::int64_t rows, std::int64_t columns, std::int64_t stride, T* out)
{
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c)
    {
        double sum = 0;
        for (std::int64_t row = 0; row < rows; ++row) { sum += double(x[row * stride + c]); }
        out[c] = T(double(out[c]) + sum);
    }
}

template<class A, class T>
PLIMSOLL_INLINE void add_two(const A* a, const T* b, T* out, std::int64_t count)
{
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i) { out[i] = T(a[i] + b[i]); }
}

}  // namespace

PLIMSOLL_VECTORISED void add_rows(const float* x, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                                  float* sum)
{
    add_all_rows(x, rows, columns, stride, sum);
}
PLIMSOLL_VECTORISED void add_rows(const double* x, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                                  double* sum)
{
    add_all_rows(x, rows, columns, stride, sum);
}
PLIMSOLL_VECTORISED void add_rows(const Bf16* x, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                                  float* sum)
{
    add_all_rows(x, rows, columns, stride, sum);
}

PLIMSOLL_VECTORISED void add_partial_sums(const float* x, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                                          float* out)
{
    add_partials(x, rows, columns, stride, out);
}
PLIMSOLL_VECTORISED void add_partial_sums(const double* x, std::int64_t rows, std::int64_t columns, std::int64_t stride,
                                          double* out)
{
    add_partials(x, rows, columns, stride, out);
}

PLIMSOLL_VECTORISED void add_vectors(const float* a, const float* b, float* out, std::int64_t count)
{
    add_two(a, b, out, count);
}
PLIMSOLL_VECTORISED void add_vectors(const double* a, const double* b, double* out, std::int64_t count)
{
    add_two(a, b, out, count);
}
PLIMSOLL_VECTORISED void add_vectors(const Bf16* a, const Bf16* b, Bf16* out, std::int64_t count)
{
    add_two(a, b, out, count);
}
PLIMSOLL_VECTORISED void add_vectors(const Bf16* a, const float* b, float* out, std::int64_t count)
{
    add_two(a, b, out, count);
}

}  // namespace plimsoll::nn::kernels
