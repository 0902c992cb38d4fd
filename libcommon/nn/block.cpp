#include "nn/block.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "engine/recorder.hpp"
#include "nn/ops/dropout.hpp"
#include "nn/ops/residual.hpp"

namespace plimsoll::nn
{
namespace
{

/// Names of one layer's tensors and the views on them in one flat state.
class LayerViews
{
  public:
    LayerViews(const ShardedParams& params, FlatState state, std::int64_t layer)
        : params_(params), state_(state), prefix_("layers." + std::to_string(layer) + ".")
    {
    }

    /// Undefined when the model has no such tensor.
    at::Tensor one(const std::string& name) const
    {
        return params_.has(prefix_ + name) ? params_.view(state_, prefix_ + name) : at::Tensor();
    }

    at::Tensor fused(std::vector<std::string> names) const
    {
        for (std::string& name : names) { name = prefix_ + name; }
        return params_.has(names.front()) ? params_.fused_view(state_, names) : at::Tensor();
    }

    at::Tensor qkv(const std::string& what) const
    {
        return fused({"attn.q_proj." + what, "attn.k_proj." + what, "attn.v_proj." + what});
    }

    at::Tensor mlp_in(Activation activation, const std::string& what) const
    {
        if (activation == Activation::swiglu) { return fused({"mlp.gate_proj." + what, "mlp.up_proj." + what}); }
        return one("mlp.up_proj." + what);
    }

  private:
    const ShardedParams& params_;
    FlatState state_;
    std::string prefix_;
};

/// Parameters and gradients of a block have the same members.
template<class Block>
void take_views(const LayerViews& views, Activation activation, Block& made)
{
    made.input_norm.weight_D = views.one("input_norm.weight");
    made.input_norm.bias_D = views.one("input_norm.bias");
    made.attention.qkv_weight_TD = views.qkv("weight");
    made.attention.qkv_bias_T = views.qkv("bias");
    made.attention.o_weight_DA = views.one("attn.o_proj.weight");
    made.attention.o_bias_D = views.one("attn.o_proj.bias");
    made.attention.q_norm_weight_E = views.one("attn.q_norm.weight");
    made.attention.k_norm_weight_E = views.one("attn.k_norm.weight");
    made.mlp_norm.weight_D = views.one("mlp_norm.weight");
    made.mlp_norm.bias_D = views.one("mlp_norm.bias");
    made.mlp.in_weight_GD = views.mlp_in(activation, "weight");
    made.mlp.in_bias_G = views.mlp_in(activation, "bias");
    made.mlp.down_weight_DF = views.one("mlp.down_proj.weight");
    made.mlp.down_bias_D = views.one("mlp.down_proj.bias");
}

at::Tensor attention_branch(const OpContext& ctx, const BlockParams& params, const at::Tensor& x_ND, BlockSaved& saved)
{
    NormForward normed;
    {
        const OpScope scope(PlanOp::input_norm, params.layer);
        normed = norm_forward(ctx, params.input_norm, x_ND);
    }
    saved.input_norm = std::move(normed.saved);
    const OpScope scope(PlanOp::attention, params.layer);
    AttentionForward attended = attention_forward(ctx, params.attention, normed.y_ND);
    saved.attention = std::move(attended.saved);
    return attended.y_MD;
}

at::Tensor mlp_branch(const OpContext& ctx, const BlockParams& params, const at::Tensor& x_ND, BlockSaved& saved)
{
    NormForward normed;
    {
        const OpScope scope(PlanOp::mlp_norm, params.layer);
        normed = norm_forward(ctx, params.mlp_norm, x_ND);
    }
    saved.mlp_norm = std::move(normed.saved);
    const OpScope scope(PlanOp::mlp, params.layer);
    MlpForward fed = mlp_forward(ctx, params.mlp, normed.y_ND);
    saved.mlp = std::move(fed.saved);
    return fed.y_MD;
}

at::Tensor add_branch(const OpContext& ctx, DropoutSite site, std::int64_t layer, const at::Tensor& x_ND,
                      const at::Tensor& branch_ND)
{
    if (ctx.dropout.hidden == 0) { return residual_add(ctx, x_ND, branch_ND); }
    return dropout_add(ctx, {ctx.dropout.hidden, site, layer}, x_ND, branch_ND);
}

/// The gradient of add_branch() towards its branch: dy itself without dropout.
at::Tensor branch_gradient(const OpContext& ctx, DropoutSite site, std::int64_t layer, const at::Tensor& dy_ND)
{
    if (ctx.dropout.hidden == 0) { return dy_ND; }
    return dropout_backward(ctx, {ctx.dropout.hidden, site, layer}, dy_ND);
}

// Weights first, then the norm: it writes over dy, which the weight gradients still read.

at::Tensor mlp_branch_backward(const OpContext& ctx, const BlockParams& params, BlockSaved&& saved, const at::Tensor& dy_ND,
                               BlockGrads& grads)
{
    MlpBackward fed;
    {
        const OpScope scope(PlanOp::mlp, params.layer);
        at::Tensor dbranch_ND = branch_gradient(ctx, DropoutSite::mlp, params.layer, dy_ND);
        fed = mlp_backward_input(ctx, params.mlp, std::move(saved.mlp), dbranch_ND);
        dbranch_ND = at::Tensor();  // ends with what is pending
        mlp_backward_weight(ctx, std::move(fed.pending), grads.mlp);
    }
    const OpScope scope(PlanOp::mlp_norm, params.layer);
    NormBackward normed = norm_backward_input_add(ctx, params.mlp_norm, std::move(saved.mlp_norm), fed.dx_MD, dy_ND);
    norm_backward_weight(ctx, std::move(normed.pending), grads.mlp_norm);
    return normed.dx_ND;
}

at::Tensor attention_branch_backward(const OpContext& ctx, const BlockParams& params, BlockSaved&& saved,
                                     const at::Tensor& dy_ND, BlockGrads& grads)
{
    AttentionBackward attended;
    {
        const OpScope scope(PlanOp::attention, params.layer);
        at::Tensor dbranch_ND = branch_gradient(ctx, DropoutSite::attention, params.layer, dy_ND);
        attended = attention_backward_input(ctx, params.attention, std::move(saved.attention), dbranch_ND);
        dbranch_ND = at::Tensor();
        attention_backward_weight(ctx, std::move(attended.pending), grads.attention);
    }
    const OpScope scope(PlanOp::input_norm, params.layer);
    NormBackward normed =
        norm_backward_input_add(ctx, params.input_norm, std::move(saved.input_norm), attended.dx_MD, dy_ND);
    norm_backward_weight(ctx, std::move(normed.pending), grads.input_norm);
    return normed.dx_ND;
}

}  // namespace

std::vector<SavedTensor> BlockSaved::tensors() const
{
    std::vector<SavedTensor> all = input_norm.tensors();
    for (const auto& part : {attention.tensors(), mlp_norm.tensors(), mlp.tensors()})
    {
        all.insert(all.end(), part.begin(), part.end());
    }
    return all;
}

BlockParams block_params(const ModelSpec& model, const ShardedParams& params, std::int64_t layer, const RopeTable* rope)
{
    const std::int64_t tp = params.layout().tp;
    BlockParams made;
    made.layer = layer;
    made.input_norm.kind = model.norm;
    made.input_norm.eps = model.norm_eps;
    made.mlp_norm = made.input_norm;
    made.attention.heads = model.heads / tp;
    made.attention.kv_heads = std::max<std::int64_t>(1, model.kv_heads / tp);
    made.attention.head_dim = model.head_dim;
    made.attention.qk_norm_eps = model.norm_eps;
    made.attention.rope = rope;
    made.mlp.activation = model.activation;
    take_views(LayerViews(params, FlatState::params, layer), model.activation, made);
    return made;
}

BlockGrads block_grads(const ModelSpec& model, const ShardedParams& params, std::int64_t layer)
{
    BlockGrads made;
    take_views(LayerViews(params, FlatState::grads, layer), model.activation, made);
    return made;
}

BlockForward block_forward(const OpContext& ctx, const BlockParams& params, const at::Tensor& x_ND)
{
    BlockForward result;
    const at::Tensor middle_ND = add_branch(ctx, DropoutSite::attention, params.layer, x_ND,
                                            attention_branch(ctx, params, x_ND, result.saved));
    result.y_ND = add_branch(ctx, DropoutSite::mlp, params.layer, middle_ND,
                             mlp_branch(ctx, params, middle_ND, result.saved));
    return result;
}

at::Tensor block_backward(const OpContext& ctx, const BlockParams& params, BlockSaved&& saved, const at::Tensor& dy_ND,
                          BlockGrads& grads)
{
    const at::Tensor dmiddle_ND = mlp_branch_backward(ctx, params, std::move(saved), dy_ND, grads);
    return attention_branch_backward(ctx, params, std::move(saved), dmiddle_ND, grads);
}

BlockBackward block_backward_input(const OpContext& ctx, const BlockParams& params, BlockSaved&& saved, at::Tensor dy_ND)
{
    // The weights still read the gradient that came in; behind a mask they read one of their own.
    const WrittenOver over = ctx.dropout.hidden == 0 ? WrittenOver::dy : WrittenOver::residual;
    BlockBackward result;
    at::Tensor dmiddle_ND;
    {
        at::Tensor dnormed_ND;
        {
            const OpScope scope(PlanOp::mlp, params.layer);
            MlpBackward fed = mlp_backward_input(ctx, params.mlp, std::move(saved.mlp),
                                                 branch_gradient(ctx, DropoutSite::mlp, params.layer, dy_ND));
            result.pending.mlp = std::move(fed.pending);
            result.pending.mlp.dy_ND = at::Tensor();
            dnormed_ND = std::move(fed.dx_MD);
        }
        const OpScope scope(PlanOp::mlp_norm, params.layer);
        NormBackward normed =
            norm_backward_input_add(ctx, params.mlp_norm, std::move(saved.mlp_norm), dnormed_ND, dy_ND, over);
        result.pending.mlp_norm = std::move(normed.pending);
        dmiddle_ND = std::move(normed.dx_ND);
    }
    at::Tensor dnormed_ND;
    {
        const OpScope scope(PlanOp::attention, params.layer);
        AttentionBackward attended =
            attention_backward_input(ctx, params.attention, std::move(saved.attention),
                                     branch_gradient(ctx, DropoutSite::attention, params.layer, dmiddle_ND));
        result.pending.attention = std::move(attended.pending);
        result.pending.attention.dy_ND = at::Tensor();
        dnormed_ND = std::move(attended.dx_MD);
    }
    const OpScope scope(PlanOp::input_norm, params.layer);
    NormBackward normed =
        norm_backward_input_add(ctx, params.input_norm, std::move(saved.input_norm), dnormed_ND, dmiddle_ND, over);
    result.pending.input_norm = std::move(normed.pending);
    result.dx_ND = std::move(normed.dx_ND);
    return result;
}

void block_backward_weight(const OpContext& ctx, std::int64_t layer, BlockPending&& pending, BlockGrads& grads)
{
    {
        const OpScope scope(PlanOp::mlp, layer);
        mlp_backward_weight(ctx, std::move(pending.mlp), grads.mlp);
    }
    {
        const OpScope scope(PlanOp::mlp_norm, layer);
        norm_backward_weight(ctx, std::move(pending.mlp_norm), grads.mlp_norm);
    }
    {
        const OpScope scope(PlanOp::attention, layer);
        attention_backward_weight(ctx, std::move(pending.attention), grads.attention);
    }
    const OpScope scope(PlanOp::input_norm, layer);
    norm_backward_weight(ctx, std::move(pending.input_norm), grads.input_norm);
}

}  // namespace plimsoll::nn
