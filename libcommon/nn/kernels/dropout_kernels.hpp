#pragma once
/// Dropout over elements whose random words are at hand. Torch-free; float, double, and bf16 through float.

#include <cstdint>

#include "base/bf16.hpp"

namespace plimsoll::nn::kernels
{

/// An element is dropped when its word is below `threshold`, else multiplied by `scale`.
struct DropoutRule
{
    std::uint32_t threshold = 0;
    double scale = 1;
};

/// The rule of a rate p in [0, 1): threshold round(p 2^32), scale 1 / (1 - p).
DropoutRule dropout_rule(double rate);

/// out[i] = dropout(x[i]); out may be x.
void drop_vector(const DropoutRule& rule, const std::uint32_t* words, const float* x, float* out, std::int64_t count);
void drop_vector(const DropoutRule& rule, const std::uint32_t* words, const double* x, double* out, std::int64_t count);
void drop_vector(const DropoutRule& rule, const std::uint32_t* words, const Bf16* x, Bf16* out, std::int64_t count);

/// sum[i] = x[i] + dropout(sum[i]).
void drop_and_add(const DropoutRule& rule, const std::uint32_t* words, const float* x, float* sum, std::int64_t count);
void drop_and_add(const DropoutRule& rule, const std::uint32_t* words, const double* x, double* sum, std::int64_t count);
void drop_and_add(const DropoutRule& rule, const std::uint32_t* words, const Bf16* x, Bf16* sum, std::int64_t count);

}  // namespace plimsoll::nn::kernels
