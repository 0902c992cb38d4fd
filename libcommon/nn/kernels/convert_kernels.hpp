#pragma once
/// Between bf16 and fp32, on one thread. Torch-free.

#include <cstdint>

#include "base/bf16.hpp"

namespace plimsoll::nn::kernels
{

/// Exact.
void widen(const Bf16* in, float* out, std::int64_t count);
/// To nearest, ties to even.
void narrow(const float* in, Bf16* out, std::int64_t count);
/// out[i] = in[i] + bias[i], rounded once.
void narrow_sum(const float* in, const Bf16* bias, Bf16* out, std::int64_t count);

}  // namespace plimsoll::nn::kernels
