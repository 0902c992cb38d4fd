#include "nn/ops/mlp.hpp"

#include <ATen/ops/empty.h>

#include "nn/cpu_allocator.hpp"
#include "nn/kernels/activation_kernels.hpp"
#include "nn/kernels/parallel.hpp"
#include "nn/ops/dispatch.hpp"
#include "nn/ops/linear.hpp"
#include "nn/ops/token_shards.hpp"

namespace plimsoll::nn
{

namespace
{

kernels::GeluKind gelu_kind(Activation activation)
{
    return activation == Activation::gelu_erf ? kernels::GeluKind::erf : kernels::GeluKind::tanh;
}

std::int64_t ffn_of(Activation activation, std::int64_t pre_columns)
{
    return activation == Activation::swiglu ? pre_columns / 2 : pre_columns;
}

template<class T>
void activate(Activation activation, const at::Tensor& pre_NG, const at::Tensor& act_NF)
{
    const std::int64_t ffn = act_NF.size(1);
    const std::int64_t pre_columns = pre_NG.size(1);
    const T* pre = elements<T>(pre_NG);
    T* act = mutable_elements<T>(act_NF);
    kernels::parallel_for(pre_NG.size(0), rows_per_task(pre_columns),
                          [&](std::int64_t first, std::int64_t last)
                          {
                              for (std::int64_t n = first; n < last; ++n)
                              {
                                  const T* in = pre + n * pre_columns;
                                  T* out = act + n * ffn;
                                  if (activation == Activation::swiglu) { kernels::swiglu_forward(in, out, ffn); }
                                  else { kernels::gelu_forward(gelu_kind(activation), in, out, ffn); }
                              }
                          });
}

/// GELU: pre becomes the output, dact the gradient of pre. SwiGLU: the other way round, since only pre is wide
/// enough.
template<class T>
void activation_backward(Activation activation, const at::Tensor& pre_NG, const at::Tensor& dact_NF)
{
    const std::int64_t ffn = dact_NF.size(1);
    const std::int64_t pre_columns = pre_NG.size(1);
    T* pre = mutable_elements<T>(pre_NG);
    T* dact = mutable_elements<T>(dact_NF);
    kernels::parallel_for(pre_NG.size(0), rows_per_task(pre_columns),
                          [&](std::int64_t first, std::int64_t last)
                          {
                              for (std::int64_t n = first; n < last; ++n)
                              {
                                  T* in = pre + n * pre_columns;
                                  T* gradient = dact + n * ffn;
                                  if (activation == Activation::swiglu) { kernels::swiglu_backward(in, gradient, ffn); }
                                  else { kernels::gelu_backward(gelu_kind(activation), in, gradient, ffn); }
                              }
                          });
}

}  // namespace

std::vector<SavedTensor> MlpSaved::tensors() const { return {{"x", x_MD}, {"pre", pre_NG}}; }

std::vector<SavedTensor> MlpPending::tensors() const
{
    return {{"x", x_MD}, {"dpre", dpre_NG}, {"act", act_NF}, {"dy", dy_MD}};
}

MlpForward mlp_forward(const OpContext& ctx, const MlpParams& params, const at::Tensor& x_MD)
{
    MlpForward result;
    result.saved.x_MD = x_MD;
    result.saved.pre_NG = project(gather_tokens(ctx, x_MD, "all_x"), params.in_weight_GD, params.in_bias_G, "in_product");
    const at::Tensor& pre_NG = result.saved.pre_NG;
    name_tensor(pre_NG, "pre", MemoryUse::activations);
    const at::Tensor act_NF = at::empty({pre_NG.size(0), ffn_of(params.activation, pre_NG.size(1))}, pre_NG.options());
    name_tensor(act_NF, "act", MemoryUse::transient);
    dispatch_real(pre_NG.scalar_type(),
                  [&](auto zero) { activate<decltype(zero)>(params.activation, pre_NG, act_NF); });
    result.y_MD = project_and_sum(ctx, act_NF, params.down_weight_DF, params.down_bias_D, "down_product");
    name_tensor(result.y_MD, "y", MemoryUse::activations);
    return result;
}

MlpBackward mlp_backward_input(const OpContext& ctx, const MlpParams& params, MlpSaved&& saved, const at::Tensor& dy_MD)
{
    at::Tensor pre_NG = std::move(saved.pre_NG);
    MlpBackward result;
    result.pending.dy_ND = gather_tokens(ctx, dy_MD, "all_dy");
    at::Tensor dact_NF = input_gradient(result.pending.dy_ND, params.down_weight_DF, "down_product");
    name_tensor(dact_NF, "dact", MemoryUse::transient);
    dispatch_real(pre_NG.scalar_type(),
                  [&](auto zero) { activation_backward<decltype(zero)>(params.activation, pre_NG, dact_NF); });
    const bool gated = params.activation == Activation::swiglu;
    result.pending.dpre_NG = gated ? pre_NG : dact_NF;
    result.pending.act_NF = gated ? dact_NF : pre_NG;
    result.pending.x_MD = std::move(saved.x_MD);
    result.pending.dy_MD = dy_MD;
    result.dx_MD = sum_to_stream(ctx, input_gradient(result.pending.dpre_NG, params.in_weight_GD, "in_product"));
    name_tensor(result.dx_MD, "dx", MemoryUse::transient);
    return result;
}

void mlp_backward_weight(const OpContext& ctx, MlpPending&& pending, MlpGrads& grads)
{
    MlpPending consumed = std::move(pending);
    if (!consumed.dy_ND.defined()) { consumed.dy_ND = gather_tokens(ctx, consumed.dy_MD, "all_dy"); }
    add_weight_gradient(consumed.act_NF, consumed.dy_ND, grads.down_weight_DF, "down_product");
    consumed.dy_ND = at::Tensor();
    add_bias_gradient(consumed.dy_MD, grads.down_bias_D, "ddown_bias_parts");
    add_weight_gradient(gather_tokens(ctx, consumed.x_MD, "all_x"), consumed.dpre_NG, grads.in_weight_GD, "in_product");
    add_bias_gradient(consumed.dpre_NG, grads.in_bias_G, "din_bias_parts");
}

}  // namespace plimsoll::nn
