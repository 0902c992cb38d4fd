#pragma once
/// y = x W^T + b with W [out, in].
///
/// Shapes: N tokens, I inputs, O outputs. f32, f64 and bf16; gradients of bf16 weights are fp32.

#include "nn/op_context.hpp"
#include "nn/ops/product.hpp"

namespace plimsoll::nn
{

struct LinearParams
{
    at::Tensor weight_OI;
    at::Tensor bias_O;  ///< undefined: none
};

/// Views of the flat gradient buffer; undefined where absent or frozen.
struct LinearGrads
{
    at::Tensor weight_OI;
    at::Tensor bias_O;
};

struct LinearSaved
{
    at::Tensor x_NI;
    std::vector<SavedTensor> tensors() const;
};

struct LinearPending
{
    at::Tensor x_NI;
    at::Tensor dy_NO;
    std::vector<SavedTensor> tensors() const;
};

struct LinearForward
{
    at::Tensor y_NO;
    LinearSaved saved;
};

struct LinearBackward
{
    at::Tensor dx_NI;
    LinearPending pending;
};

/// x is kept, not copied.
LinearForward linear_forward(const OpContext& ctx, const LinearParams& params, const at::Tensor& x_NI);

/// dx = dy W. dy is kept in `pending`: nobody may write to it before backward_weight.
LinearBackward linear_backward_input(const OpContext& ctx, const LinearParams& params, LinearSaved&& saved,
                                     const at::Tensor& dy_NO);

/// dW += dy^T x, db += sum of dy's rows (in fixed blocks: not dependent on the number of threads).
void linear_backward_weight(const OpContext& ctx, LinearPending&& pending, LinearGrads& grads);

/// The parts of the above that other operations share, beside the products. With W cut along its inputs over tp,
/// project_and_sum() adds the ranks' parts before the bias and returns the tokens of the residual stream, [M, O].
at::Tensor project_and_sum(const OpContext& ctx, const at::Tensor& x_NI, const at::Tensor& weight_OI, const at::Tensor& bias_O,
                           const char* scratch);
/// `parts_name`: what the activation table calls the partial sums.
void add_bias_gradient(const at::Tensor& dy_NO, const at::Tensor& dbias_O,
                       const char* parts_name = "dbias_parts");

}  // namespace plimsoll::nn
