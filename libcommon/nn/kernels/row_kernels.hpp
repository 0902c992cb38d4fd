#pragma once
/// Sums over rows and additions of rows. Torch-free; float, double, and bf16 added up in float.

#include <cstdint>

#include "base/bf16.hpp"

namespace plimsoll::nn::kernels
{

/// sum[c] += x[r, c] over `rows` rows of `columns` elements that start every `stride` elements, in row order.
void add_rows(const float* x, std::int64_t rows, std::int64_t columns, std::int64_t stride, float* sum);
void add_rows(const double* x, std::int64_t rows, std::int64_t columns, std::int64_t stride, double* sum);
void add_rows(const Bf16* x, std::int64_t rows, std::int64_t columns, std::int64_t stride, float* sum);

/// out[c] += sum over rows of x[r, c], the sum taken in f64.
void add_partial_sums(const float* x, std::int64_t rows, std::int64_t columns, std::int64_t stride, float* out);
void add_partial_sums(const double* x, std::int64_t rows, std::int64_t columns, std::int64_t stride, double* out);

/// out[i] = a[i] + b[i]; out may be a or b.
void add_vectors(const float* a, const float* b, float* out, std::int64_t count);
void add_vectors(const double* a, const double* b, double* out, std::int64_t count);
void add_vectors(const Bf16* a, const Bf16* b, Bf16* out, std::int64_t count);
void add_vectors(const Bf16* a, const float* b, float* out, std::int64_t count);

}  // namespace plimsoll::nn::kernels
