#include "nn/ops/linear.hpp"

#include <ATen/ops/add.h>
#include <ATen/ops/zeros.h>

#include "nn/cpu_allocator.hpp"
#include "nn/kernels/parallel.hpp"
#include "nn/kernels/row_kernels.hpp"
#include "nn/ops/dispatch.hpp"
#include "nn/ops/token_shards.hpp"

namespace plimsoll::nn
{

namespace
{

template<class T>
void add_column_sums(const at::Tensor& dy_NO, const at::Tensor& dbias_O, const char* parts_name)
{
    const std::int64_t num_rows = dy_NO.size(0);
    const std::int64_t columns = dy_NO.size(1);
    const std::int64_t block = kernels::sum_block_rows(num_rows);
    const std::int64_t blocks = (num_rows + block - 1) / block;
    const at::Tensor partial_KO = at::zeros({blocks, columns}, dbias_O.options());
    name_tensor(partial_KO, parts_name, MemoryUse::transient);
    const T* dy = elements<T>(dy_NO);
    Wide<T>* partial = mutable_elements<Wide<T>>(partial_KO);
    kernels::parallel_blocks(num_rows, block,
                             [&](std::int64_t first, std::int64_t last) {
                                 kernels::add_rows(dy + first * columns, last - first, columns, columns,
                                                   partial + first / block * columns);
                             });
    kernels::add_partial_sums(partial, blocks, columns, columns, mutable_elements<Wide<T>>(dbias_O));
}

}  // namespace

std::vector<SavedTensor> LinearSaved::tensors() const { return {{"x", x_NI}}; }

std::vector<SavedTensor> LinearPending::tensors() const { return {{"x", x_NI}, {"dy", dy_NO}}; }

at::Tensor project_and_sum(const OpContext& ctx, const at::Tensor& x_NI, const at::Tensor& weight_OI, const at::Tensor& bias_O,
                           const char* scratch)
{
    if (ctx.tp->size() == 1) { return project(x_NI, weight_OI, bias_O, scratch); }
    at::Tensor y_MO = sum_to_stream(ctx, project(x_NI, weight_OI, at::Tensor(), scratch));
    if (bias_O.defined()) { at::add_out(y_MO, y_MO, bias_O); }
    return y_MO;
}

void add_bias_gradient(const at::Tensor& dy_NO, const at::Tensor& dbias_O, const char* parts_name)
{
    if (!dbias_O.defined()) { return; }
    EXPECT(dy_NO.dim() == 2 && dbias_O.numel() == dy_NO.size(1));
    dispatch_real(dy_NO.scalar_type(), [&](auto zero) { add_column_sums<decltype(zero)>(dy_NO, dbias_O, parts_name); });
}

LinearForward linear_forward(const OpContext&, const LinearParams& params, const at::Tensor& x_NI)
{
    LinearForward result;
    result.y_NO = project(x_NI, params.weight_OI, params.bias_O, "product");
    result.saved.x_NI = x_NI;
    return result;
}

LinearBackward linear_backward_input(const OpContext&, const LinearParams& params, LinearSaved&& saved,
                                     const at::Tensor& dy_NO)
{
    LinearBackward result;
    result.dx_NI = input_gradient(dy_NO, params.weight_OI, "product");
    result.pending.x_NI = std::move(saved.x_NI);
    result.pending.dy_NO = dy_NO;
    return result;
}

void linear_backward_weight(const OpContext&, LinearPending&& pending, LinearGrads& grads)
{
    const LinearPending consumed = std::move(pending);
    add_weight_gradient(consumed.x_NI, consumed.dy_NO, grads.weight_OI, "product");
    add_bias_gradient(consumed.dy_NO, grads.bias_O);
}

}  // namespace plimsoll::nn
