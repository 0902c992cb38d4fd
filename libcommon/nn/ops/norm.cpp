#include "nn/ops/norm.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "nn/cpu_allocator.hpp"
#include "nn/kernels/norm_kernels.hpp"
#include "nn/kernels/parallel.hpp"
#include "nn/kernels/row_kernels.hpp"
#include "nn/ops/dispatch.hpp"

namespace plimsoll::nn
{

namespace
{

template<class T>
kernels::NormRows<T> norm_rows(const NormParams& params, const NormSaved& saved, std::int64_t first, std::int64_t last)
{
    kernels::NormRows<T> rows;
    rows.rows = last - first;
    rows.dim = params.weight_D.numel();
    rows.x = elements<T>(saved.x_ND) + first * rows.dim;
    rows.weight = elements<T>(params.weight_D);
    rows.bias = optional_elements<T>(params.bias_D);
    rows.mean = saved.mean_N.defined() ? mutable_elements<Wide<T>>(saved.mean_N) + first : nullptr;
    rows.rstd = mutable_elements<Wide<T>>(saved.rstd_N) + first;
    return rows;
}

/// Sum of the rows of a [blocks, D] tensor.
template<class T>
at::Tensor sum_partials(const at::Tensor& partial_KD, const char* name)
{
    const std::int64_t dim = partial_KD.size(1);
    at::Tensor sum_D = at::zeros({dim}, partial_KD.options());
    name_tensor(sum_D, name, MemoryUse::transient);
    kernels::add_partial_sums(elements<T>(partial_KD), partial_KD.size(0), dim, dim, mutable_elements<T>(sum_D));
    return sum_D;
}

template<class T>
NormBackward backward(const NormParams& params, const NormSaved& saved, const at::Tensor& dy_ND,
                      const at::Tensor& dresidual_ND, WrittenOver over)
{
    const std::int64_t dim = params.weight_D.numel();
    const std::int64_t num_rows = saved.rstd_N.numel();
    const std::int64_t block = kernels::sum_block_rows(num_rows);
    const std::int64_t blocks = (num_rows + block - 1) / block;
    const bool adds = dresidual_ND.defined();
    const at::Tensor dx_ND = adds && over == WrittenOver::residual ? dresidual_ND : dy_ND;
    const at::TensorOptions sums = saved.rstd_N.options();
    const at::Tensor dweight_KD = at::zeros({blocks, dim}, sums);
    const at::Tensor dbias_KD = params.bias_D.defined() ? at::zeros({blocks, dim}, sums) : at::Tensor();
    name_tensor(dweight_KD, "dweight_parts", MemoryUse::transient);
    name_tensor(dbias_KD, "dbias_parts", MemoryUse::transient);

    const T* dy = elements<T>(dy_ND);
    const T* residual = adds ? elements<T>(dresidual_ND) : nullptr;
    T* dx = mutable_elements<T>(dx_ND);
    Wide<T>* dweight = mutable_elements<Wide<T>>(dweight_KD);
    Wide<T>* dbias = dbias_KD.defined() ? mutable_elements<Wide<T>>(dbias_KD) : nullptr;
    kernels::parallel_blocks(num_rows, block,
                             [&](std::int64_t first, std::int64_t last)
                             {
                                 const std::int64_t k = first / block;
                                 kernels::NormGradient<T> gradient;
                                 gradient.dy = dy + first * dim;
                                 gradient.dx = dx + first * dim;
                                 gradient.residual = adds ? residual + first * dim : nullptr;
                                 gradient.dweight = dweight + k * dim;
                                 gradient.dbias = dbias != nullptr ? dbias + k * dim : nullptr;
                                 kernels::norm_backward(norm_rows<T>(params, saved, first, last), gradient);
                             });
    NormBackward result;
    result.dx_ND = dx_ND;
    result.pending.dweight_D = sum_partials<Wide<T>>(dweight_KD, "dweight");
    if (dbias_KD.defined()) { result.pending.dbias_D = sum_partials<Wide<T>>(dbias_KD, "dbias"); }
    return result;
}

template<class T>
void add_sum(const at::Tensor& sum_D, const at::Tensor& gradient_D)
{
    T* gradient = mutable_elements<T>(gradient_D);
    kernels::add_vectors(elements<T>(sum_D), gradient, gradient, gradient_D.numel());
}

}  // namespace

std::vector<SavedTensor> NormSaved::tensors() const
{
    std::vector<SavedTensor> list = {{"x", x_ND}, {"rstd", rstd_N}};
    if (mean_N.defined()) { list.push_back({"mean", mean_N}); }
    return list;
}

std::vector<SavedTensor> NormPending::tensors() const
{
    std::vector<SavedTensor> list = {{"dweight", dweight_D}};
    if (dbias_D.defined()) { list.push_back({"dbias", dbias_D}); }
    return list;
}

NormForward norm_forward(const OpContext&, const NormParams& params, const at::Tensor& x_ND)
{
    const std::int64_t dim = params.weight_D.numel();
    EXPECT(dim > 0 && x_ND.dim() > 0 && x_ND.size(-1) == dim);
    const std::int64_t num_rows = x_ND.numel() / dim;
    NormForward result;
    result.saved.x_ND = x_ND;
    const at::TensorOptions statistics = x_ND.options().dtype(sum_type(x_ND.scalar_type()));
    result.saved.rstd_N = at::empty({num_rows}, statistics);
    if (params.kind == NormKind::layer_norm) { result.saved.mean_N = at::empty({num_rows}, statistics); }
    result.y_ND = at::empty(x_ND.sizes(), x_ND.options());
    name_tensor(result.saved.rstd_N, "rstd", params.kept_as);
    name_tensor(result.saved.mean_N, "mean", params.kept_as);
    name_tensor(result.y_ND, "y", params.kept_as);
    dispatch_real(x_ND.scalar_type(),
                  [&](auto zero)
                  {
                      using T = decltype(zero);
                      T* y = mutable_elements<T>(result.y_ND);
                      kernels::parallel_for(num_rows, rows_per_task(dim),
                                            [&](std::int64_t first, std::int64_t last) {
                                                kernels::norm_forward(norm_rows<T>(params, result.saved, first, last),
                                                                      params.eps, y + first * dim);
                                            });
                  });
    return result;
}

NormBackward norm_backward_input(const OpContext& ctx, const NormParams& params, NormSaved&& saved,
                                 const at::Tensor& dy_ND)
{
    return norm_backward_input_add(ctx, params, std::move(saved), dy_ND, at::Tensor());
}

NormBackward norm_backward_input_add(const OpContext&, const NormParams& params, NormSaved&& saved,
                                     const at::Tensor& dy_ND, const at::Tensor& dresidual_ND, WrittenOver over)
{
    const NormSaved consumed = std::move(saved);
    EXPECT(dy_ND.sizes() == consumed.x_ND.sizes());
    EXPECT(!dresidual_ND.defined() || dresidual_ND.sizes() == dy_ND.sizes());
    NormBackward result;
    dispatch_real(dy_ND.scalar_type(),
                  [&](auto zero) { result = backward<decltype(zero)>(params, consumed, dy_ND, dresidual_ND, over); });
    return result;
}

void norm_backward_weight(const OpContext&, NormPending&& pending, NormGrads& grads)
{
    const NormPending consumed = std::move(pending);
    dispatch_wide(consumed.dweight_D.scalar_type(),
                  [&](auto zero)
                  {
                      using T = decltype(zero);
                      if (grads.weight_D.defined()) { add_sum<T>(consumed.dweight_D, grads.weight_D); }
                      if (grads.bias_D.defined()) { add_sum<T>(consumed.dbias_D, grads.bias_D); }
                  });
}

}  // namespace plimsoll::nn
