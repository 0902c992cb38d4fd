#pragma once
/// Feed-forward layer: y = act(x Win^T + b) Wdown^T + b.
///
///     gelu_tanh, gelu_erf:  act(u) = gelu(u)             Win = up            [F, D]
///     swiglu:               act(g, u) = silu(g) * u      Win = gate over up  [2F, D], gate rows first
///
/// Kept alive: x and the pre-activation. The activation's output is made again in backward, in the pass that turns
/// the incoming gradient into that of the pre-activation; both overwrite buffers that exist.
///
/// Shapes: N tokens, D model, F ffn, G = F or 2F. f32, f64 and bf16. Over tp, F is this rank's part: the first projection is cut
/// along its outputs, the second along its inputs; y and dx are summed over the group. x, y and their gradients are of the
/// residual stream: M of the N tokens with sequence parallel (nn/ops/token_shards.hpp).

#include "layout/model_spec.hpp"
#include "nn/op_context.hpp"

namespace plimsoll::nn
{

struct MlpParams
{
    Activation activation = Activation::swiglu;
    at::Tensor in_weight_GD;
    at::Tensor in_bias_G;  ///< undefined: none
    at::Tensor down_weight_DF;
    at::Tensor down_bias_D;  ///< undefined: none
};

/// Views of the flat gradient buffer; undefined where absent or frozen.
struct MlpGrads
{
    at::Tensor in_weight_GD;
    at::Tensor in_bias_G;
    at::Tensor down_weight_DF;
    at::Tensor down_bias_D;
};

struct MlpSaved
{
    at::Tensor x_MD;
    at::Tensor pre_NG;
    std::vector<SavedTensor> tensors() const;
};

struct MlpPending
{
    at::Tensor x_MD;
    at::Tensor dpre_NG;
    at::Tensor act_NF;
    at::Tensor dy_MD;
    /// dy of all tokens while it is at hand: saves its second gathering in backward_weight. Whoever runs that much later drops it.
    at::Tensor dy_ND;
    std::vector<SavedTensor> tensors() const;
};

struct MlpForward
{
    at::Tensor y_MD;
    MlpSaved saved;
};

struct MlpBackward
{
    at::Tensor dx_MD;
    MlpPending pending;
};

/// x is kept, not copied.
MlpForward mlp_forward(const OpContext& ctx, const MlpParams& params, const at::Tensor& x_MD);

/// dy is kept in `pending`; the tensors of `saved` are consumed.
MlpBackward mlp_backward_input(const OpContext& ctx, const MlpParams& params, MlpSaved&& saved,
                               const at::Tensor& dy_MD);

void mlp_backward_weight(const OpContext& ctx, MlpPending&& pending, MlpGrads& grads);

}  // namespace plimsoll::nn
