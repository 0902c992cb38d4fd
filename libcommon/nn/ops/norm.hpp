#pragma once
/// LayerNorm and RMSNorm over the last dim.
///
///     xhat = (x - mean) * rstd      LayerNorm: rstd = 1 / sqrt(var + eps), var with 1/D
///     xhat = x * rstd               RMSNorm:   rstd = 1 / sqrt(mean(x^2) + eps)
///     y = xhat * weight + bias
///
/// Shapes: N tokens (or any number of rows), D model. f32, f64 and bf16 (statistics, sums and gradients of the weights in fp32). Results do not depend on the number of threads.

#include "layout/model_spec.hpp"
#include "nn/op_context.hpp"
#include "plan/step_event.hpp"

namespace plimsoll::nn
{

struct NormParams
{
    NormKind kind = NormKind::rms_norm;
    double eps = 1e-5;
    at::Tensor weight_D;
    at::Tensor bias_D;  ///< undefined: none
    MemoryUse kept_as = MemoryUse::activations;  ///< row of the memory table for what forward keeps
};

/// Views of the flat gradient buffer; undefined where absent or frozen.
struct NormGrads
{
    at::Tensor weight_D;
    at::Tensor bias_D;
};

struct NormSaved
{
    at::Tensor x_ND;
    at::Tensor mean_N;  ///< undefined for RMSNorm
    at::Tensor rstd_N;
    std::vector<SavedTensor> tensors() const;
};

/// The sums of one backward pass. They are D elements each and need a pass over x and dy that backward_input makes
/// anyway, so that neither x nor dy stays alive for the weight's gradient.
struct NormPending
{
    at::Tensor dweight_D;
    at::Tensor dbias_D;  ///< undefined without bias
    std::vector<SavedTensor> tensors() const;
};

struct NormForward
{
    at::Tensor y_ND;
    NormSaved saved;
};

struct NormBackward
{
    at::Tensor dx_ND;
    NormPending pending;
};

/// @pre x_ND is contiguous; it is kept, not copied: nobody may write to it before backward.
NormForward norm_forward(const OpContext& ctx, const NormParams& params, const at::Tensor& x_ND);

/// dx is written over dy: the caller gives dy up.
NormBackward norm_backward_input(const OpContext& ctx, const NormParams& params, NormSaved&& saved,
                                 const at::Tensor& dy_ND);

enum class WrittenOver { residual, dy };

/// As above with the gradient that reached x around the norm: dx = dresidual + J^T dy, written over `dresidual_ND`, or over dy
/// where somebody still reads the residual's.
NormBackward norm_backward_input_add(const OpContext& ctx, const NormParams& params, NormSaved&& saved,
                                     const at::Tensor& dy_ND, const at::Tensor& dresidual_ND,
                                     WrittenOver over = WrittenOver::residual);

/// Adds into the defined members of `grads`.
void norm_backward_weight(const OpContext& ctx, NormPending&& pending, NormGrads& grads);

}  // namespace plimsoll::nn
