#pragma once
/// The matrix products of a projection with W [out, in].
///
/// f32 and f64 are ATen's products. bf16 operands are converted to fp32 block by block, multiplied and summed in fp32, and the
/// result is rounded once: ATen's own bf16 product has no fp32 result on the CPU, copies its operands without bound, and is a
/// scalar loop on processors without bf16 arithmetic (docs/adr/0004-bf16.md). The blocks lie in one scratch tensor of
/// product_scratch_elements() (plan/kernel_shapes.hpp), which bears the name that the activation table gives it.
///
/// Shapes: N tokens, I inputs, O outputs. `y` and `dy` are of the run's type, or fp32 beside bf16 operands (logits).

#include <ATen/core/Tensor.h>

namespace plimsoll::nn
{

/// y = x W^T + b; b undefined: none. `y` has rows of any stride.
void project_into(const at::Tensor& x_NI, const at::Tensor& weight_OI, const at::Tensor& bias_O, const at::Tensor& y_NO,
                  const char* scratch);
/// The same into a new tensor.
at::Tensor project(const at::Tensor& x_NI, const at::Tensor& weight_OI, const at::Tensor& bias_O, const char* scratch);

/// dx = dy W.
void input_gradient_into(const at::Tensor& dy_NO, const at::Tensor& weight_OI, const at::Tensor& dx_NI, const char* scratch);
/// The same into a new tensor, of dy's type or of `type`.
at::Tensor input_gradient(const at::Tensor& dy_NO, const at::Tensor& weight_OI, const char* scratch);
at::Tensor input_gradient(const at::Tensor& dy_NO, const at::Tensor& weight_OI, const char* scratch, at::ScalarType type);

/// dW += dy^T x, summed in dW's type: fp32 beside bf16. Nothing where dW is undefined.
void add_weight_gradient(const at::Tensor& x_NI, const at::Tensor& dy_NO, const at::Tensor& dweight_OI, const char* scratch);

}  // namespace plimsoll::nn
