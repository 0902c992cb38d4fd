#include "nn/ops/product.hpp"

#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/t.h>

#include <algorithm>

#include "nn/cpu_allocator.hpp"
#include "nn/kernels/convert_kernels.hpp"
#include "nn/kernels/parallel.hpp"
#include "nn/ops/dispatch.hpp"

namespace plimsoll::nn
{

namespace
{

/// Calls body(r, row of `in`, row of `out`) for all rows, in parallel. @pre elements of a row are neighbours
template<class In, class Out, class Body>
void for_row_pairs(const at::Tensor& in_RC, const at::Tensor& out_RC, const Body& body)
{
    EXPECT(in_RC.sizes() == out_RC.sizes());
    const std::int64_t columns = in_RC.size(1), in_stride = in_RC.stride(0), out_stride = out_RC.stride(0);
    EXPECT(columns <= 1 || (in_RC.stride(1) == 1 && out_RC.stride(1) == 1));
    const In* in = first_element<In>(in_RC);
    Out* out = mutable_first_element<Out>(out_RC);
    kernels::parallel_for(in_RC.size(0), rows_per_task(columns),
                          [&](std::int64_t first, std::int64_t last)
                          {
                              for (std::int64_t r = first; r < last; ++r) { body(in + r * in_stride, out + r * out_stride); }
                          });
}

void narrow_into(const at::Tensor& sum_RC, const at::Tensor& bias_C, const at::Tensor& out_RC)
{
    const Bf16* bias = bias_C.defined() ? first_element<Bf16>(bias_C) : nullptr;
    const std::int64_t columns = sum_RC.size(1);
    for_row_pairs<float, Bf16>(sum_RC, out_RC,
                               [&](const float* in, Bf16* out)
                               {
                                   if (bias == nullptr) { kernels::narrow(in, out, columns); }
                                   else { kernels::narrow_sum(in, bias, out, columns); }
                               });
}

/// The blocks of one product of bf16 operands: a few hundred tokens times as many rows of the weight.
class ProductBlocks
{
  public:
    ProductBlocks(std::int64_t tokens, const at::Tensor& weight_OI, const char* name)
        : tokens_(tokens), inputs_(weight_OI.size(1)), outputs_(weight_OI.size(0)), token_rows_(product_token_rows(tokens)),
          weight_rows_(product_weight_rows(inputs_, outputs_)),
          scratch_(at::empty({product_scratch_elements(tokens, inputs_, outputs_)}, at::TensorOptions().dtype(at::kFloat)))
    {
        name_tensor(scratch_, name, MemoryUse::transient);
    }

    /// body(first, number) for blocks of tokens, and of rows of the weight.
    template<class Body>
    void for_tokens(const Body& body) const
    {
        for (std::int64_t n = 0; n < tokens_; n += token_rows_) { body(n, std::min(token_rows_, tokens_ - n)); }
    }
    template<class Body>
    void for_weight_rows(const Body& body) const
    {
        for (std::int64_t o = 0; o < outputs_; o += weight_rows_) { body(o, std::min(weight_rows_, outputs_ - o)); }
    }

    at::Tensor inputs_room(std::int64_t tokens) const { return room(0, tokens, inputs_); }
    at::Tensor outputs_room(std::int64_t tokens, std::int64_t rows) const { return room(token_rows_ * inputs_, tokens, rows); }
    at::Tensor weight_room(std::int64_t rows) const
    {
        return room(token_rows_ * (inputs_ + weight_rows_), rows, inputs_);
    }

    /// `part` itself where it is fp32, else its copy in `room`.
    static at::Tensor wide(const at::Tensor& part_RC, const at::Tensor& room_RC)
    {
        if (part_RC.scalar_type() == at::kFloat) { return part_RC; }
        const std::int64_t columns = part_RC.size(1);
        for_row_pairs<Bf16, float>(part_RC, room_RC, [&](const Bf16* in, float* out) { kernels::widen(in, out, columns); });
        return room_RC;
    }

  private:
    at::Tensor room(std::int64_t offset, std::int64_t rows, std::int64_t columns) const
    {
        return scratch_.narrow(0, offset, rows * columns).view({rows, columns});
    }

    std::int64_t tokens_, inputs_, outputs_, token_rows_, weight_rows_;
    at::Tensor scratch_;
};

bool is_bf16(const at::Tensor& tensor) { return tensor.scalar_type() == at::kBFloat16; }

}  // namespace

void project_into(const at::Tensor& x_NI, const at::Tensor& weight_OI, const at::Tensor& bias_O, const at::Tensor& y_NO,
                  const char* scratch)
{
    if (!is_bf16(weight_OI))
    {
        at::Tensor y = y_NO;
        if (bias_O.defined()) { at::addmm_out(y, bias_O, x_NI, at::t(weight_OI)); }
        else { at::mm_out(y, x_NI, at::t(weight_OI)); }
        return;
    }
    EXPECT(is_bf16(y_NO) || !bias_O.defined());
    const ProductBlocks blocks(x_NI.size(0), weight_OI, scratch);
    blocks.for_tokens(
        [&](std::int64_t n, std::int64_t tokens)
        {
            const at::Tensor x_BI = blocks.wide(x_NI.narrow(0, n, tokens), blocks.inputs_room(tokens));
            blocks.for_weight_rows(
                [&](std::int64_t o, std::int64_t rows)
                {
                    const at::Tensor weight = blocks.wide(weight_OI.narrow(0, o, rows), blocks.weight_room(rows));
                    const at::Tensor y = y_NO.narrow(0, n, tokens).narrow(1, o, rows);
                    at::Tensor sum = is_bf16(y) ? blocks.outputs_room(tokens, rows) : y;
                    at::mm_out(sum, x_BI, at::t(weight));
                    if (is_bf16(y)) { narrow_into(sum, bias_O.defined() ? bias_O.narrow(0, o, rows) : bias_O, y); }
                });
        });
}

at::Tensor project(const at::Tensor& x_NI, const at::Tensor& weight_OI, const at::Tensor& bias_O, const char* scratch)
{
    if (!is_bf16(weight_OI))
    {
        if (bias_O.defined()) { return at::addmm(bias_O, x_NI, at::t(weight_OI)); }
        return at::mm(x_NI, at::t(weight_OI));
    }
    const at::Tensor y_NO = at::empty({x_NI.size(0), weight_OI.size(0)}, x_NI.options());
    project_into(x_NI, weight_OI, bias_O, y_NO, scratch);
    return y_NO;
}

void input_gradient_into(const at::Tensor& dy_NO, const at::Tensor& weight_OI, const at::Tensor& dx_NI, const char* scratch)
{
    if (!is_bf16(weight_OI))
    {
        at::Tensor dx = dx_NI;
        at::mm_out(dx, dy_NO, weight_OI);
        return;
    }
    const ProductBlocks blocks(dy_NO.size(0), weight_OI, scratch);
    if (weight_OI.size(0) == 0) { dx_NI.zero_(); }  // a rank without rows of the vocabulary
    blocks.for_tokens(
        [&](std::int64_t n, std::int64_t tokens)
        {
            const at::Tensor dx = dx_NI.narrow(0, n, tokens);
            at::Tensor sum = is_bf16(dx) ? blocks.inputs_room(tokens) : dx;
            blocks.for_weight_rows(
                [&](std::int64_t o, std::int64_t rows)
                {
                    const at::Tensor weight = blocks.wide(weight_OI.narrow(0, o, rows), blocks.weight_room(rows));
                    const at::Tensor dy =
                        blocks.wide(dy_NO.narrow(0, n, tokens).narrow(1, o, rows), blocks.outputs_room(tokens, rows));
                    if (o == 0) { at::mm_out(sum, dy, weight); }
                    else { at::addmm_out(sum, sum, dy, weight); }
                });
            if (is_bf16(dx) && weight_OI.size(0) > 0) { narrow_into(sum, at::Tensor(), dx); }
        });
}

at::Tensor input_gradient(const at::Tensor& dy_NO, const at::Tensor& weight_OI, const char* scratch)
{
    return input_gradient(dy_NO, weight_OI, scratch, dy_NO.scalar_type());
}

at::Tensor input_gradient(const at::Tensor& dy_NO, const at::Tensor& weight_OI, const char* scratch, at::ScalarType type)
{
    if (!is_bf16(weight_OI)) { return at::mm(dy_NO, weight_OI); }
    const at::Tensor dx_NI = at::empty({dy_NO.size(0), weight_OI.size(1)}, dy_NO.options().dtype(type));
    input_gradient_into(dy_NO, weight_OI, dx_NI, scratch);
    return dx_NI;
}

void add_weight_gradient(const at::Tensor& x_NI, const at::Tensor& dy_NO, const at::Tensor& dweight_OI, const char* scratch)
{
    if (!dweight_OI.defined()) { return; }
    if (!is_bf16(x_NI))
    {
        at::Tensor sum_OI = dweight_OI;
        at::addmm_out(sum_OI, sum_OI, at::t(dy_NO), x_NI);
        return;
    }
    EXPECT(dweight_OI.scalar_type() == at::kFloat);
    const ProductBlocks blocks(x_NI.size(0), dweight_OI, scratch);
    blocks.for_tokens(
        [&](std::int64_t n, std::int64_t tokens)
        {
            const at::Tensor x_BI = blocks.wide(x_NI.narrow(0, n, tokens), blocks.inputs_room(tokens));
            blocks.for_weight_rows(
                [&](std::int64_t o, std::int64_t rows)
                {
                    const at::Tensor dy =
                        blocks.wide(dy_NO.narrow(0, n, tokens).narrow(1, o, rows), blocks.outputs_room(tokens, rows));
                    at::Tensor sum = dweight_OI.narrow(0, o, rows);
                    at::addmm_out(sum, sum, at::t(dy), x_BI);
                });
        });
}

}  // namespace plimsoll::nn
