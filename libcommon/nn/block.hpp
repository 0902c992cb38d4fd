#pragma once
/// One transformer layer, pre-norm: x2 = x + dropout(attention(norm(x))); y = x2 + dropout(mlp(norm(x2))).
///
/// N tokens of the residual stream (B*S, or this rank's share with sequence parallel), D model. Saved tensors are consumed by the backward.

#include "nn/op_context.hpp"
#include "nn/ops/attention.hpp"
#include "nn/ops/mlp.hpp"
#include "nn/ops/norm.hpp"
#include "nn/sharded_params.hpp"

namespace plimsoll::nn
{

struct BlockParams
{
    std::int64_t layer = -1;  ///< global number
    NormParams input_norm;
    AttentionParams attention;
    NormParams mlp_norm;
    MlpParams mlp;
};

struct BlockGrads
{
    NormGrads input_norm;
    AttentionGrads attention;
    NormGrads mlp_norm;
    MlpGrads mlp;
};

struct BlockSaved
{
    NormSaved input_norm;
    AttentionSaved attention;
    NormSaved mlp_norm;
    MlpSaved mlp;
    std::vector<SavedTensor> tensors() const;
};

struct BlockForward
{
    at::Tensor y_ND;
    BlockSaved saved;
};

/// Views of layer `layer` in the flat buffers. `rope` must outlive the result; nullptr for learned positions.
BlockParams block_params(const ModelSpec& model, const ShardedParams& params, std::int64_t layer, const RopeTable* rope);
BlockGrads block_grads(const ModelSpec& model, const ShardedParams& params, std::int64_t layer);

BlockForward block_forward(const OpContext& ctx, const BlockParams& params, const at::Tensor& x_ND);

/// Plain backward: each operation's backward_input directly followed by its backward_weight. Returns dx, written over dy.
at::Tensor block_backward(const OpContext& ctx, const BlockParams& params, BlockSaved&& saved, const at::Tensor& dy_ND,
                          BlockGrads& grads);

/// What backward_input leaves for backward_weight.
struct BlockPending
{
    MlpPending mlp;
    NormPending mlp_norm;
    AttentionPending attention;
    NormPending input_norm;
};

struct BlockBackward
{
    at::Tensor dx_ND;
    BlockPending pending;
};

/// dx lies in memory of its own, since dy is kept in `pending` (with sequence parallel this rank's tokens of it); with hidden dropout
/// over dy, since `pending` keeps what lies behind the masks.
BlockBackward block_backward_input(const OpContext& ctx, const BlockParams& params, BlockSaved&& saved, at::Tensor dy_ND);
/// Needs no parameters, so that they can be elsewhere by then.
void block_backward_weight(const OpContext& ctx, std::int64_t layer, BlockPending&& pending, BlockGrads& grads);

}  // namespace plimsoll::nn
