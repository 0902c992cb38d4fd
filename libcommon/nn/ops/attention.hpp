#pragma once
/// Causal self-attention with fused projections: qkv = x Wqkv^T + b; optional RMSNorm of each q and k head; RoPE;
/// flash attention (query head h uses KV head h / (H/K)); y = out Wo^T + b.
///
/// Shapes: B batch and S sequence of the context, N = B*S tokens, D model, H query heads, K KV heads, E head dim,
/// T = (H + 2K) E: rows of the fused weight, q heads first, then k, then v. f32, f64, and bf16 with the attention itself in fp32.
///
/// With document masks a token attends to those of its own document, and RoPE counts positions from its beginning.
///
/// Over tp, H and K are this rank's heads: the fused projection is cut along its outputs, o_proj along its inputs; y and dx
/// are summed over the group. x, y and their gradients are of the residual stream: M of the N tokens with sequence parallel
/// (nn/ops/token_shards.hpp). Where ranks share KV heads or a head norm, their gradients stay partial sums.

#include "nn/op_context.hpp"
#include "nn/ops/rope.hpp"

namespace plimsoll::nn
{

struct AttentionParams
{
    std::int64_t heads = 0;     ///< H
    std::int64_t kv_heads = 0;  ///< K, divides H
    std::int64_t head_dim = 0;  ///< E
    at::Tensor qkv_weight_TD;
    at::Tensor qkv_bias_T;       ///< undefined: none
    at::Tensor o_weight_DA;      ///< A = H*E
    at::Tensor o_bias_D;         ///< undefined: none
    at::Tensor q_norm_weight_E;  ///< undefined: no qk-norm
    at::Tensor k_norm_weight_E;
    double qk_norm_eps = 1e-6;
    const RopeTable* rope = nullptr;  ///< at least S positions; nullptr: none
};

/// Views of the flat gradient buffer; undefined where absent or frozen.
struct AttentionGrads
{
    at::Tensor qkv_weight_TD;
    at::Tensor qkv_bias_T;
    at::Tensor o_weight_DA;
    at::Tensor o_bias_D;
    at::Tensor q_norm_weight_E;
    at::Tensor k_norm_weight_E;
};

struct AttentionSaved
{
    at::Tensor x_MD;
    at::Tensor
        qkv_NT;  ///< q and k rotated; with qk-norm neither normalised nor rotated (both are made again in backward)
    at::Tensor out_NA;   ///< attention's output before the last projection
    at::Tensor lse_BHS;  ///< log-sum-exp of the scores: f32, or f64 in an f64 run
    std::vector<SavedTensor> tensors() const;
};

struct AttentionPending
{
    at::Tensor x_MD;
    at::Tensor dqkv_NT;
    at::Tensor out_NA;
    at::Tensor dy_MD;
    at::Tensor dy_ND;  ///< of all tokens while it is at hand, as in MlpPending
    at::Tensor dq_norm_weight_E;  ///< only with qk-norm
    at::Tensor dk_norm_weight_E;
    std::vector<SavedTensor> tensors() const;
};

struct AttentionForward
{
    at::Tensor y_MD;
    AttentionSaved saved;
};

struct AttentionBackward
{
    at::Tensor dx_MD;
    AttentionPending pending;
};

/// @pre rows of x_MD in (b, s) order. x is kept, not copied.
AttentionForward attention_forward(const OpContext& ctx, const AttentionParams& params, const at::Tensor& x_MD);

/// dy is kept in `pending`; the tensors of `saved` are consumed.
AttentionBackward attention_backward_input(const OpContext& ctx, const AttentionParams& params, AttentionSaved&& saved,
                                           const at::Tensor& dy_MD);

void attention_backward_weight(const OpContext& ctx, AttentionPending&& pending, AttentionGrads& grads);

}  // namespace plimsoll::nn
