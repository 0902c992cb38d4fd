#pragma once
/// Bridges between tensors and torch-free buffer views.

#include <ATen/core/Tensor.h>

#include "mem/buffer_view.hpp"

namespace plimsoll::nn
{

/// The memory of a contiguous CPU tensor (f32, f64, i64, u8); does not keep it alive.
/// @throws InternalError for another type or a strided tensor.
BufferView buffer_view(const at::Tensor& tensor);

}  // namespace plimsoll::nn
