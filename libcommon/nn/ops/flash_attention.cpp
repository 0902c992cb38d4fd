#include "nn/ops/flash_attention.hpp"

#ifdef PLIMSOLL_ATEN_CPU_VARIANTS
#include <ATen/native/transformers/attention.h>
#endif
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <tuple>

#include "base/error.hpp"

namespace plimsoll::nn
{

namespace
{

/// All tokens of a batch as one sequence: [B, heads, S, E] over rows in (b, s) order becomes [1, heads, N, E].
at::Tensor one_sequence(const at::Tensor& heads_BHSE)
{
    const std::int64_t batch = heads_BHSE.size(0), seq_len = heads_BHSE.size(2);
    EXPECT(batch == 1 || heads_BHSE.stride(0) == seq_len * heads_BHSE.stride(2));
    return heads_BHSE.as_strided({1, heads_BHSE.size(1), batch * seq_len, heads_BHSE.size(3)}, heads_BHSE.strides());
}

void check_starts(const std::vector<std::int64_t>& starts, std::int64_t num_tokens)
{
    EXPECT(starts.size() >= 2 && starts.front() == 0 && starts.back() == num_tokens);
}

/// The kernel on one document, views [1, num, heads, E] of results and [1, heads, num, E] of inputs.
void document_forward(const at::Tensor& out, const at::Tensor& lse, const at::Tensor& q, const at::Tensor& k, const at::Tensor& v)
{
#ifdef PLIMSOLL_ATEN_CPU_VARIANTS
    at::native::flash_attention_kernel(at::kCPU, out, lse, q, k, v, 0.0, true, std::nullopt, std::nullopt);
#else
    const auto [made_out, made_lse] = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, true);
    out.copy_(made_out.transpose(1, 2));
    lse.copy_(made_lse.transpose(1, 2));
#endif
}

/// All views [1, num, heads, E]; the gradients are zeros.
void document_backward(const FlashGradients& grads, const at::Tensor& dout, const FlashHeads& in, const FlashForward& made)
{
#ifdef PLIMSOLL_ATEN_CPU_VARIANTS
    at::native::flash_attention_backward_kernel(at::kCPU, grads.dq_BHSE, grads.dk_BKSE, grads.dv_BKSE, dout, in.q_BHSE, in.k_BKSE,
                                                in.v_BKSE, made.out_BHSE, made.lse_BHS, 0.0, true, std::nullopt, std::nullopt);
#else
    const auto heads_first = [](const at::Tensor& rows) { return rows.transpose(1, 2); };
    const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        heads_first(dout), heads_first(in.q_BHSE), heads_first(in.k_BKSE), heads_first(in.v_BKSE), heads_first(made.out_BHSE),
        heads_first(made.lse_BHS), 0.0, true);
    grads.dq_BHSE.copy_(heads_first(dq));
    grads.dk_BKSE.copy_(heads_first(dk));
    grads.dv_BKSE.copy_(heads_first(dv));
#endif
}

/// `compute` gets the first token and the number of each document.
template<class Compute>
void for_each_document(const std::vector<std::int64_t>& starts, const Compute& compute)
{
    for (std::size_t i = 0; i + 1 < starts.size(); ++i) { compute(starts[i], starts[i + 1] - starts[i]); }
}

}  // namespace

FlashForward flash_attention(const FlashHeads& heads, const std::vector<std::int64_t>* starts)
{
    FlashForward made;
    if (starts == nullptr)
    {
        std::tie(made.out_BHSE, made.lse_BHS) =
            at::_scaled_dot_product_flash_attention_for_cpu(heads.q_BHSE, heads.k_BKSE, heads.v_BKSE, 0.0, true);
        return made;
    }
    const at::Tensor& q = heads.q_BHSE;
    const std::int64_t batch = q.size(0), num_heads = q.size(1), seq_len = q.size(2), dim = q.size(3), tokens = batch * seq_len;
    check_starts(*starts, tokens);
    const at::Tensor out_BSHE = at::empty({batch, seq_len, num_heads, dim}, q.options());
    const at::Tensor lse_BSH = at::empty({batch, seq_len, num_heads}, q.options());
    const at::Tensor out = out_BSHE.view({1, tokens, num_heads, dim}), lse = lse_BSH.view({1, tokens, num_heads});
    const at::Tensor all_q = one_sequence(q), all_k = one_sequence(heads.k_BKSE), all_v = one_sequence(heads.v_BKSE);
    for_each_document(*starts,
                      [&](std::int64_t first, std::int64_t num)
                      {
                          document_forward(out.narrow(1, first, num), lse.narrow(1, first, num), all_q.narrow(2, first, num),
                                           all_k.narrow(2, first, num), all_v.narrow(2, first, num));
                      });
    made.out_BHSE = out_BSHE.transpose(1, 2);
    made.lse_BHS = lse_BSH.transpose(1, 2);
    return made;
}

FlashGradients flash_attention_backward(const at::Tensor& dout_BHSE, const FlashHeads& heads, const FlashForward& made,
                                        const std::vector<std::int64_t>* starts)
{
    FlashGradients result;
    if (starts == nullptr)
    {
        std::tie(result.dq_BHSE, result.dk_BKSE, result.dv_BKSE) = at::_scaled_dot_product_flash_attention_for_cpu_backward(
            dout_BHSE, heads.q_BHSE, heads.k_BKSE, heads.v_BKSE, made.out_BHSE, made.lse_BHS, 0.0, true);
        return result;
    }
    const at::Tensor& q = heads.q_BHSE;
    const std::int64_t batch = q.size(0), seq_len = q.size(2), dim = q.size(3), tokens = batch * seq_len;
    check_starts(*starts, tokens);
    // The kernel adds to them.
    const auto zeros_BSHE = [&](const at::Tensor& like) { return at::zeros({batch, seq_len, like.size(1), dim}, like.options()); };
    const auto tokens_first = [](const at::Tensor& like) { return one_sequence(like).transpose(1, 2); };
    const at::Tensor dq_BSHE = zeros_BSHE(q), dk_BSKE = zeros_BSHE(heads.k_BKSE), dv_BSKE = zeros_BSHE(heads.v_BKSE);
    const at::Tensor dq = dq_BSHE.view({1, tokens, -1, dim}), dk = dk_BSKE.view({1, tokens, -1, dim}),
                     dv = dv_BSKE.view({1, tokens, -1, dim});
    const at::Tensor dout = tokens_first(dout_BHSE), out = tokens_first(made.out_BHSE), all_q = tokens_first(q),
                     all_k = tokens_first(heads.k_BKSE), all_v = tokens_first(heads.v_BKSE);
    const at::Tensor lse = made.lse_BHS.transpose(1, 2).view({1, tokens, q.size(1)});
    for_each_document(*starts,
                      [&](std::int64_t first, std::int64_t num)
                      {
                          const auto part = [&](const at::Tensor& all) { return all.narrow(1, first, num); };
                          document_backward({part(dv), part(dk), part(dq)}, part(dout), {part(all_q), part(all_k), part(all_v)},
                                            {part(out), part(lse)});
                      });
    result.dq_BHSE = dq_BSHE.transpose(1, 2);
    result.dk_BKSE = dk_BSKE.transpose(1, 2);
    result.dv_BKSE = dv_BSKE.transpose(1, 2);
    return result;
}

}  // namespace plimsoll::nn
