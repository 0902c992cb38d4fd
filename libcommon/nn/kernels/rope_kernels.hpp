#pragma once
/// Rotation of heads by position (nn/ops/rope.hpp). Torch-free; float, double, and bf16 with tables in float.

#include <cstdint>

#include "base/bf16.hpp"

namespace plimsoll::nn::kernels
{

enum class Rotation
{
    forward,
    inverse
};

/// Rotates `heads` heads of 2*half elements; a head starts every `source_stride` / `target_stride` elements. Source
/// and target may be the same memory. `cosine` and `sine` have `half` elements.
void rotate_heads(Rotation rotation, const float* source, std::int64_t source_stride, float* target,
                  std::int64_t target_stride, std::int64_t heads, std::int64_t half, const float* cosine,
                  const float* sine);
void rotate_heads(Rotation rotation, const double* source, std::int64_t source_stride, double* target,
                  std::int64_t target_stride, std::int64_t heads, std::int64_t half, const double* cosine,
                  const double* sine);
void rotate_heads(Rotation rotation, const Bf16* source, std::int64_t source_stride, Bf16* target,
                  std::int64_t target_stride, std::int64_t heads, std::int64_t half, const float* cosine,
                  const float* sine);
/// Of a gradient that was computed in float: rounded once.
void rotate_heads(Rotation rotation, const float* source, std::int64_t source_stride, Bf16* target,
                  std::int64_t target_stride, std::int64_t heads, std::int64_t half, const float* cosine,
                  const float* sine);

}  // namespace plimsoll::nn::kernels
