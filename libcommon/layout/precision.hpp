#pragma once
/// What [train] precision means for the types of a run.
///
///     precision   parameters, activations   master weights   gradients, moments, statistics, logits
///     fp64        f64                       -                f64
///     fp32        f32                       -                f32
///     bf16        bf16                      f32              f32

#include <cstdint>
#include <string>

#include "base/dtype.hpp"
#include "base/error.hpp"

namespace plimsoll
{

/// Of parameters and activations. @pre fp64, fp32 or bf16
inline Dtype parameter_dtype(const std::string& precision)
{
    EXPECT(precision == "fp64" || precision == "fp32" || precision == "bf16");
    return precision == "fp64" ? Dtype::f64 : precision == "fp32" ? Dtype::f32 : Dtype::bf16;
}

/// Of what is summed up or updated in small steps beside parameters of `dtype`: never less than fp32.
constexpr Dtype sum_dtype(Dtype dtype) { return dtype == Dtype::bf16 ? Dtype::f32 : dtype; }

/// Bytes of an element of it, beside parameters of `parameter_bytes`.
constexpr std::int64_t sum_bytes(std::int64_t parameter_bytes) { return parameter_bytes < 4 ? 4 : parameter_bytes; }

/// Whether the optimizer updates a copy that is wider than the parameters.
constexpr bool keeps_master(Dtype dtype) { return sum_dtype(dtype) != dtype; }

}  // namespace plimsoll
