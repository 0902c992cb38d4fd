#include "nn/ops/attention.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "nn/cpu_allocator.hpp"
#include "nn/kernels/convert_kernels.hpp"
#include "nn/kernels/norm_kernels.hpp"
#include "nn/kernels/parallel.hpp"
#include "nn/kernels/rope_kernels.hpp"
#include "nn/kernels/row_kernels.hpp"
#include "nn/ops/dispatch.hpp"
#include "nn/ops/flash_attention.hpp"
#include "nn/ops/linear.hpp"
#include "nn/ops/token_positions.hpp"
#include "nn/ops/token_shards.hpp"

namespace plimsoll::nn
{

namespace
{

struct Shape
{
    std::int64_t batch, seq_len, tokens, heads, kv_heads, head_dim;
    TokenPositions positions;  ///< each thread takes a copy
    const std::vector<std::int64_t>* starts;
    std::int64_t qk_heads() const { return heads + kv_heads; }
    std::int64_t qk_columns() const { return qk_heads() * head_dim; }
    std::int64_t qkv_columns() const { return (heads + 2 * kv_heads) * head_dim; }
};

Shape shape_of(const OpContext& ctx, const AttentionParams& params)
{
    EXPECT(params.kv_heads > 0 && params.heads % params.kv_heads == 0);
    EXPECT(params.rope == nullptr || params.rope->cos_SC.size(0) >= ctx.seq_len);
    return {ctx.batch, ctx.seq_len, ctx.batch * ctx.seq_len, params.heads, params.kv_heads, params.head_dim,
            TokenPositions(ctx), ctx.document_starts};
}

/// Heads [first, first + heads) of a [N, columns] buffer as [B, heads, S, E], without a copy.
at::Tensor heads_BHSE(const Shape& shape, const at::Tensor& buffer, std::int64_t first, std::int64_t heads)
{
    return buffer.view({shape.batch, shape.seq_len, -1, shape.head_dim}).narrow(2, first, heads).transpose(1, 2);
}

template<class W>
struct RopeRows
{
    const W* cosine = nullptr;  ///< nullptr: no rotation
    const W* sine = nullptr;
    std::int64_t half = 0;
};

template<class W>
RopeRows<W> rope_rows(const AttentionParams& params)
{
    if (params.rope == nullptr) { return {}; }
    return {elements<W>(params.rope->cos_SC), elements<W>(params.rope->sin_SC), params.head_dim / 2};
}

void copy_row(const float* source, float* target, std::int64_t count) { std::copy_n(source, count, target); }
void copy_row(const double* source, double* target, std::int64_t count) { std::copy_n(source, count, target); }
void copy_row(const float* source, Bf16* target, std::int64_t count) { kernels::narrow(source, target, count); }

/// Copies heads that start every `stride` elements to neighbouring ones, turned back by their position.
template<class W, class T>
void unrotate_heads(const RopeRows<W>& rope, std::int64_t position, const W* source, std::int64_t stride, T* target,
                    std::int64_t heads, std::int64_t head_dim)
{
    if (rope.cosine != nullptr)
    {
        kernels::rotate_heads(kernels::Rotation::inverse, source, stride, target, head_dim, heads, rope.half,
                              rope.cosine + position * rope.half, rope.sine + position * rope.half);
        return;
    }
    for (std::int64_t head = 0; head < heads; ++head) { copy_row(source + head * stride, target + head * head_dim, head_dim); }
}

/// Normalises (with qk-norm, from qkv into qk) and rotates (in qk) the q and k heads of every token. Without qk-norm,
/// qk is qkv itself.
template<class T, class Out>
void prepare_query_key(const AttentionParams& params, const Shape& shape, const at::Tensor& qkv_NT,
                       const at::Tensor& qk)
{
    const std::int64_t qk_stride = qk.size(1);
    const T* raw = elements<T>(qkv_NT);
    Out* prepared = mutable_elements<Out>(qk);
    const RopeRows<Wide<T>> rope = rope_rows<Wide<T>>(params);
    const bool normalise = params.q_norm_weight_E.defined();
    if (!normalise && rope.cosine == nullptr) { return; }
    kernels::parallel_for(shape.tokens, rows_per_task(shape.qk_columns()),
                          [&](std::int64_t first, std::int64_t last)
                          {
                              std::vector<Wide<T>> rstd(static_cast<std::size_t>(shape.qk_heads()));
                              TokenPositions positions = shape.positions;
                              for (std::int64_t n = first; n < last; ++n)
                              {
                                  Out* row = prepared + n * qk_stride;
                                  if (normalise)
                                  {
                                      kernels::NormRows<T> q;
                                      q.rows = shape.heads;
                                      q.dim = shape.head_dim;
                                      q.x = raw + n * shape.qkv_columns();
                                      q.weight = elements<T>(params.q_norm_weight_E);
                                      q.rstd = rstd.data();
                                      kernels::norm_forward(q, params.qk_norm_eps, row);
                                      kernels::NormRows<T> k = q;
                                      k.rows = shape.kv_heads;
                                      k.x = q.x + shape.heads * shape.head_dim;
                                      k.weight = elements<T>(params.k_norm_weight_E);
                                      kernels::norm_forward(k, params.qk_norm_eps, row + shape.heads * shape.head_dim);
                                  }
                                  if (rope.cosine != nullptr)
                                  {
                                      const std::int64_t offset = positions.at(n) * rope.half;
                                      kernels::rotate_heads(kernels::Rotation::forward, row, shape.head_dim, row,
                                                            shape.head_dim, shape.qk_heads(), rope.half,
                                                            rope.cosine + offset, rope.sine + offset);
                                  }
                              }
                          });
}

/// What the flash kernel reads: buffers whose columns are those of qkv, `qk` at least up to the k heads.
struct FlashInputs
{
    at::Tensor qk;
    at::Tensor v;
};

/// A copy in fp32: the kernel's bf16 path would round the sums of dk and dv after each block of queries.
at::Tensor wide_inputs(const AttentionParams& params, const Shape& shape, const at::Tensor& qkv_NT)
{
    const at::Tensor wide_NT = at::empty(qkv_NT.sizes(), qkv_NT.options().dtype(at::kFloat));
    name_tensor(wide_NT, "qkv_wide", MemoryUse::transient);
    const std::int64_t columns = shape.qkv_columns();
    const std::int64_t ready = params.q_norm_weight_E.defined() ? shape.qk_columns() : 0;
    const Bf16* qkv = elements<Bf16>(qkv_NT);
    float* wide = mutable_elements<float>(wide_NT);
    kernels::parallel_for(shape.tokens, rows_per_task(columns),
                          [&](std::int64_t first, std::int64_t last)
                          {
                              for (std::int64_t n = first; n < last; ++n)
                              {
                                  kernels::widen(qkv + n * columns + ready, wide + n * columns + ready, columns - ready);
                              }
                          });
    if (ready > 0) { prepare_query_key<Bf16, float>(params, shape, qkv_NT, wide_NT); }
    return wide_NT;
}

FlashInputs flash_inputs(const AttentionParams& params, const Shape& shape, const at::Tensor& qkv_NT)
{
    if (qkv_NT.scalar_type() == at::kBFloat16)
    {
        const at::Tensor wide_NT = wide_inputs(params, shape, qkv_NT);
        return {wide_NT, wide_NT};
    }
    if (!params.q_norm_weight_E.defined()) { return {qkv_NT, qkv_NT}; }
    const at::Tensor qk = at::empty({shape.tokens, shape.qk_columns()}, qkv_NT.options());
    name_tensor(qk, "qk", MemoryUse::transient);
    dispatch_wide(qkv_NT.scalar_type(),
                  [&](auto zero) { prepare_query_key<decltype(zero), decltype(zero)>(params, shape, qkv_NT, qk); });
    return {qk, qkv_NT};
}

/// Converts between bf16 and fp32; both contiguous.
void convert(const at::Tensor& from, const at::Tensor& to)
{
    constexpr std::int64_t block = 16384;
    const bool widens = from.scalar_type() == at::kBFloat16;
    kernels::parallel_blocks(from.numel(), block,
                             [&](std::int64_t first, std::int64_t last)
                             {
                                 if (widens)
                                 {
                                     kernels::widen(elements<Bf16>(from) + first, mutable_elements<float>(to) + first, last - first);
                                     return;
                                 }
                                 kernels::narrow(elements<float>(from) + first, mutable_elements<Bf16>(to) + first, last - first);
                             });
}

FlashHeads flash_heads(const Shape& shape, const FlashInputs& in)
{
    return {heads_BHSE(shape, in.qk, 0, shape.heads), heads_BHSE(shape, in.qk, shape.heads, shape.kv_heads),
            heads_BHSE(shape, in.v, shape.qk_heads(), shape.kv_heads)};
}

struct FlashOutput
{
    at::Tensor out_NA;
    at::Tensor lse_BHS;
};

FlashOutput flash_forward(const AttentionParams& params, const Shape& shape, const at::Tensor& qkv_NT)
{
    FlashOutput result;
    const FlashInputs in = flash_inputs(params, shape, qkv_NT);
    FlashForward made = flash_attention(flash_heads(shape, in), shape.starts);
    result.lse_BHS = std::move(made.lse_BHS);
    name_tensor(result.lse_BHS, "lse", MemoryUse::activations);
    at::Tensor out_NA = std::move(made.out_BHSE).transpose(1, 2).reshape({shape.tokens, shape.heads * shape.head_dim});
    if (qkv_NT.scalar_type() != at::kBFloat16)
    {
        name_tensor(out_NA, "out", MemoryUse::activations);
        result.out_NA = std::move(out_NA);
        return result;
    }
    name_tensor(out_NA, "out_wide", MemoryUse::transient);
    result.out_NA = at::empty(out_NA.sizes(), qkv_NT.options());
    name_tensor(result.out_NA, "out", MemoryUse::activations);
    convert(out_NA, result.out_NA);
    return result;
}

/// What the kernel's backward reads as its own output.
at::Tensor flash_output(const at::Tensor& out_NA)
{
    if (out_NA.scalar_type() != at::kBFloat16) { return out_NA; }
    const at::Tensor wide_NA = at::empty(out_NA.sizes(), out_NA.options().dtype(at::kFloat));
    name_tensor(wide_NA, "out_wide", MemoryUse::transient);
    convert(out_NA, wide_NA);
    return wide_NA;
}

/// Turns dq and dk back and puts dq, dk, dv beside each other.
template<class T>
void pack_gradients(const AttentionParams& params, const Shape& shape, const at::Tensor& dq, const at::Tensor& dk,
                    const at::Tensor& dv, const at::Tensor& dqkv_NT)
{
    const RopeRows<Wide<T>> rope = rope_rows<Wide<T>>(params);
    T* packed = mutable_elements<T>(dqkv_NT);
    const auto source = [](const at::Tensor& gradient, std::int64_t b, std::int64_t s)
    { return first_element<Wide<T>>(gradient) + b * gradient.stride(0) + s * gradient.stride(2); };
    kernels::parallel_for(shape.tokens, rows_per_task(shape.qkv_columns()),
                          [&](std::int64_t first, std::int64_t last)
                          {
                              TokenPositions positions = shape.positions;
                              for (std::int64_t n = first; n < last; ++n)
                              {
                                  const std::int64_t position = positions.at(n);
                                  const std::int64_t b = n / shape.seq_len;
                                  const std::int64_t s = n % shape.seq_len;
                                  T* row = packed + n * shape.qkv_columns();
                                  unrotate_heads(rope, position, source(dq, b, s), dq.stride(1), row, shape.heads,
                                                 shape.head_dim);
                                  row += shape.heads * shape.head_dim;
                                  unrotate_heads(rope, position, source(dk, b, s), dk.stride(1), row, shape.kv_heads,
                                                 shape.head_dim);
                                  row += shape.kv_heads * shape.head_dim;
                                  unrotate_heads(RopeRows<Wide<T>>(), position, source(dv, b, s), dv.stride(1), row, shape.kv_heads,
                                                 shape.head_dim);
                              }
                          });
}

/// One of the two head norms.
struct HeadNorm
{
    const at::Tensor& weight_E;
    std::int64_t first_column;  ///< where its heads begin in a row of qkv
    std::int64_t heads;
    const char* parts;          ///< the activation table's names of its gradient
    const char* sum;
};

/// Gradient of a head norm, in place in dqkv; returns that of its weight.
template<class T>
at::Tensor head_norm_backward(const AttentionParams& params, const Shape& shape, const HeadNorm& norm,
                              const at::Tensor& qkv_NT, const at::Tensor& dqkv_NT)
{
    const std::int64_t first_column = norm.first_column;
    const std::int64_t heads = norm.heads;
    const std::int64_t dim = shape.head_dim;
    const std::int64_t block = kernels::sum_block_rows(shape.tokens);
    const std::int64_t blocks = (shape.tokens + block - 1) / block;
    const at::TensorOptions sums = qkv_NT.options().dtype(sum_type(qkv_NT.scalar_type()));
    const at::Tensor partial_KE = at::zeros({blocks, dim}, sums);
    name_tensor(partial_KE, norm.parts, MemoryUse::transient);
    const T* raw = elements<T>(qkv_NT) + first_column;
    const T* weight = elements<T>(norm.weight_E);
    T* gradient_rows = mutable_elements<T>(dqkv_NT) + first_column;
    Wide<T>* partial = mutable_elements<Wide<T>>(partial_KE);
    kernels::parallel_blocks(shape.tokens, block,
                             [&](std::int64_t first, std::int64_t last)
                             {
                                 std::vector<Wide<T>> rstd(static_cast<std::size_t>(heads));
                                 std::vector<T> normalised(static_cast<std::size_t>(heads * dim));
                                 for (std::int64_t n = first; n < last; ++n)
                                 {
                                     kernels::NormRows<T> rows;
                                     rows.rows = heads;
                                     rows.dim = dim;
                                     rows.x = raw + n * shape.qkv_columns();
                                     rows.weight = weight;
                                     rows.rstd = rstd.data();
                                     kernels::norm_forward(rows, params.qk_norm_eps, normalised.data());
                                     kernels::NormGradient<T> gradient;
                                     gradient.dy = gradient_rows + n * shape.qkv_columns();
                                     gradient.dx = gradient_rows + n * shape.qkv_columns();
                                     gradient.dweight = partial + first / block * dim;
                                     kernels::norm_backward(rows, gradient);
                                 }
                             });
    const at::Tensor dweight_E = at::zeros({dim}, sums);
    name_tensor(dweight_E, norm.sum, MemoryUse::transient);
    kernels::add_partial_sums(partial, blocks, dim, dim, mutable_elements<Wide<T>>(dweight_E));
    return dweight_E;
}

at::Tensor rows_contiguous(const at::Tensor& gradient_BHSE)
{
    return gradient_BHSE.stride(3) == 1 ? gradient_BHSE : gradient_BHSE.contiguous();
}

template<class T>
void add_norm_gradient(const at::Tensor& sum_E, const at::Tensor& gradient_E)
{
    if (!gradient_E.defined()) { return; }
    T* gradient = mutable_elements<T>(gradient_E);
    kernels::add_vectors(elements<T>(sum_E), gradient, gradient, gradient_E.numel());
}

}  // namespace

std::vector<SavedTensor> AttentionSaved::tensors() const
{
    return {{"x", x_MD}, {"qkv", qkv_NT}, {"attn_out", out_NA}, {"lse", lse_BHS}};
}

std::vector<SavedTensor> AttentionPending::tensors() const
{
    std::vector<SavedTensor> list = {{"x", x_MD}, {"dqkv", dqkv_NT}, {"attn_out", out_NA}, {"dy", dy_MD}};
    if (dq_norm_weight_E.defined())
    {
        list.push_back({"dq_norm", dq_norm_weight_E});
        list.push_back({"dk_norm", dk_norm_weight_E});
    }
    return list;
}

AttentionForward attention_forward(const OpContext& ctx, const AttentionParams& params, const at::Tensor& x_MD)
{
    const Shape shape = shape_of(ctx, params);
    EXPECT(x_MD.dim() == 2 && x_MD.size(0) == ctx.stream_tokens());
    AttentionForward result;
    AttentionSaved& saved = result.saved;
    saved.x_MD = x_MD;
    saved.qkv_NT = project(gather_tokens(ctx, x_MD, "all_x"), params.qkv_weight_TD, params.qkv_bias_T, "qkv_product");
    name_tensor(saved.qkv_NT, "qkv", MemoryUse::activations);
    if (!params.q_norm_weight_E.defined())
    {
        dispatch_real(x_MD.scalar_type(),
                      [&](auto zero)
                      { prepare_query_key<decltype(zero), decltype(zero)>(params, shape, saved.qkv_NT, saved.qkv_NT); });
    }
    FlashOutput attended = flash_forward(params, shape, saved.qkv_NT);
    saved.out_NA = std::move(attended.out_NA);
    saved.lse_BHS = std::move(attended.lse_BHS);
    result.y_MD = project_and_sum(ctx, saved.out_NA, params.o_weight_DA, params.o_bias_D, "o_product");
    name_tensor(result.y_MD, "y", MemoryUse::activations);
    return result;
}

AttentionBackward attention_backward_input(const OpContext& ctx, const AttentionParams& params, AttentionSaved&& saved,
                                           const at::Tensor& dy_MD)
{
    const Shape shape = shape_of(ctx, params);
    const AttentionSaved consumed = std::move(saved);
    AttentionBackward result;
    AttentionPending& pending = result.pending;
    pending.dqkv_NT = at::empty({shape.tokens, shape.qkv_columns()}, dy_MD.options());
    name_tensor(pending.dqkv_NT, "dqkv", MemoryUse::transient);
    pending.dy_ND = gather_tokens(ctx, dy_MD, "all_dy");
    {
        const at::Tensor dout_NA =
            input_gradient(pending.dy_ND, params.o_weight_DA, "o_product", sum_type(dy_MD.scalar_type()));
        name_tensor(dout_NA, "dout", MemoryUse::transient);
        const FlashInputs in = flash_inputs(params, shape, consumed.qkv_NT);
        const at::Tensor out_NA = flash_output(consumed.out_NA);
        const FlashGradients made =
            flash_attention_backward(heads_BHSE(shape, dout_NA, 0, shape.heads), flash_heads(shape, in),
                                     {heads_BHSE(shape, out_NA, 0, shape.heads), consumed.lse_BHS}, shape.starts);
        name_tensor(made.dq_BHSE, "dq", MemoryUse::transient);
        name_tensor(made.dk_BKSE, "dk", MemoryUse::transient);
        name_tensor(made.dv_BKSE, "dv", MemoryUse::transient);
        const at::Tensor dq_BHSE = rows_contiguous(made.dq_BHSE);
        const at::Tensor dk_BHSE = rows_contiguous(made.dk_BKSE);
        const at::Tensor dv_BHSE = rows_contiguous(made.dv_BKSE);
        dispatch_real(dy_MD.scalar_type(), [&](auto zero)
                      { pack_gradients<decltype(zero)>(params, shape, dq_BHSE, dk_BHSE, dv_BHSE, pending.dqkv_NT); });
    }
    if (params.q_norm_weight_E.defined())
    {
        dispatch_real(dy_MD.scalar_type(),
                      [&](auto zero)
                      {
                          using T = decltype(zero);
                          const HeadNorm q = {params.q_norm_weight_E, 0, shape.heads, "dq_norm_parts", "dq_norm"};
                          const HeadNorm k = {params.k_norm_weight_E, shape.heads * shape.head_dim, shape.kv_heads,
                                              "dk_norm_parts", "dk_norm"};
                          pending.dq_norm_weight_E =
                              head_norm_backward<T>(params, shape, q, consumed.qkv_NT, pending.dqkv_NT);
                          pending.dk_norm_weight_E =
                              head_norm_backward<T>(params, shape, k, consumed.qkv_NT, pending.dqkv_NT);
                      });
    }
    pending.x_MD = consumed.x_MD;
    pending.out_NA = consumed.out_NA;
    pending.dy_MD = dy_MD;
    result.dx_MD = sum_to_stream(ctx, input_gradient(pending.dqkv_NT, params.qkv_weight_TD, "qkv_product"));
    name_tensor(result.dx_MD, "dx", MemoryUse::transient);
    return result;
}

void attention_backward_weight(const OpContext& ctx, AttentionPending&& pending, AttentionGrads& grads)
{
    AttentionPending consumed = std::move(pending);
    if (!consumed.dy_ND.defined()) { consumed.dy_ND = gather_tokens(ctx, consumed.dy_MD, "all_dy"); }
    add_weight_gradient(consumed.out_NA, consumed.dy_ND, grads.o_weight_DA, "o_product");
    consumed.dy_ND = at::Tensor();
    add_bias_gradient(consumed.dy_MD, grads.o_bias_D, "do_bias_parts");
    add_weight_gradient(gather_tokens(ctx, consumed.x_MD, "all_x"), consumed.dqkv_NT, grads.qkv_weight_TD, "qkv_product");
    add_bias_gradient(consumed.dqkv_NT, grads.qkv_bias_T, "dqkv_bias_parts");
    if (consumed.dq_norm_weight_E.defined())
    {
        dispatch_wide(consumed.dq_norm_weight_E.scalar_type(),
                      [&](auto zero)
                      {
                          using T = decltype(zero);
                          add_norm_gradient<T>(consumed.dq_norm_weight_E, grads.q_norm_weight_E);
                          add_norm_gradient<T>(consumed.dk_norm_weight_E, grads.k_norm_weight_E);
                      });
    }
}

}  // namespace plimsoll::nn
