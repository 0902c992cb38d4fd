#pragma once
/// Rotary position embedding in the half-split convention of HF's Llama: channel i turns with channel i + E/2,
///
///     out_i       = x_i cos(a) - x_{i+E/2} sin(a)
///     out_{i+E/2} = x_{i+E/2} cos(a) + x_i sin(a)       a = position * inv_freq_i
///
/// Angles, cosines and sines follow the fp32 formula whatever the run's type, and are then cast: the same values in
/// every precision. Shapes: S positions, E head dim, C = E/2.

#include <vector>

#include "layout/model_spec.hpp"
#include "nn/op_context.hpp"

namespace plimsoll::nn
{

struct RopeTable
{
    at::Tensor cos_SC;
    at::Tensor sin_SC;
};

/// E/2 frequencies: 1 / theta^(2i/E), with llama3 scaling when asked for. @pre head_dim is even
std::vector<float> rope_inverse_frequencies(const RopeSpec& spec, std::int64_t head_dim);

/// Table for positions 0 .. seq_len-1 as `dtype` (at::kFloat or at::kDouble).
RopeTable make_rope_table(const RopeSpec& spec, std::int64_t head_dim, std::int64_t seq_len, at::ScalarType dtype);

}  // namespace plimsoll::nn
