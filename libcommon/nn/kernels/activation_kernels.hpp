#pragma once
/// GELU and SwiGLU with their gradients, in place, on one thread. Torch-free; float, double, and bf16 through float.

#include <cstdint>

#include "base/bf16.hpp"

namespace plimsoll::nn::kernels
{

enum class GeluKind
{
    tanh,
    erf
};

/// out = gelu(pre)
void gelu_forward(GeluKind kind, const float* pre, float* out, std::int64_t count);
void gelu_forward(GeluKind kind, const double* pre, double* out, std::int64_t count);
void gelu_forward(GeluKind kind, const Bf16* pre, Bf16* out, std::int64_t count);

/// pre becomes gelu(pre), gradient (of the output) becomes that of pre.
void gelu_backward(GeluKind kind, float* pre, float* gradient, std::int64_t count);
void gelu_backward(GeluKind kind, double* pre, double* gradient, std::int64_t count);
void gelu_backward(GeluKind kind, Bf16* pre, Bf16* gradient, std::int64_t count);

/// One row: pre holds gate[ffn], up[ffn]; out[ffn] = silu(gate) * up
void swiglu_forward(const float* pre, float* out, std::int64_t ffn);
void swiglu_forward(const double* pre, double* out, std::int64_t ffn);
void swiglu_forward(const Bf16* pre, Bf16* out, std::int64_t ffn);

/// One row: gradient (of the output, [ffn]) becomes the output, pre ([2 ffn]) becomes its own gradient.
void swiglu_backward(float* pre, float* gradient, std::int64_t ffn);
void swiglu_backward(double* pre, double* gradient, std::int64_t ffn);
void swiglu_backward(Bf16* pre, Bf16* gradient, std::int64_t ffn);

}  // namespace plimsoll::nn::kernels
