// Attention with every combination of its parts against autograd, and the RoPE table. B, S, D, H, K, E as in
// attention.hpp.

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/softmax.h>

#include <cmath>
#include <limits>
#include <utility>

#include "nn/ops/attention.hpp"
#include "torch/nn/op_test_support.hpp"

namespace plimsoll::nn
{
namespace
{

struct Case
{
    std::int64_t batch, seq_len, dim, heads, kv_heads, head_dim;
    bool rope, qk_norm, qkv_bias, o_bias;
};

const Case cases[] = {
    {1, 1, 4, 1, 1, 2, true, false, false, false},  // one token: a softmax over one score
    {2, 1, 6, 2, 1, 4, true, true, true, false},
    {1, 7, 12, 3, 3, 4, false, false, true, true},    // GPT-2: no rotation, biases everywhere
    {3, 17, 24, 4, 2, 6, true, false, false, false},  // Llama with grouped KV heads
    {2, 33, 20, 6, 1, 10, true, false, true, false},  // Qwen2: QKV bias, one KV head
    {2, 65, 24, 4, 2, 8, true, true, false, false},   // Qwen3: qk-norm
    {1, 130, 16, 2, 2, 16, false, true, true, true},  // more than one block of rows in the sums
};

AttentionParams make_params(const Case& c, at::ScalarType type)
{
    const std::int64_t qkv_rows = (c.heads + 2 * c.kv_heads) * c.head_dim;
    AttentionParams params;
    params.heads = c.heads;
    params.kv_heads = c.kv_heads;
    params.head_dim = c.head_dim;
    params.qkv_weight_TD = random_weight(qkv_rows, c.dim, type);
    params.o_weight_DA = random_weight(c.dim, c.heads * c.head_dim, type);
    if (c.qkv_bias) { params.qkv_bias_T = random({qkv_rows}, type); }
    if (c.o_bias) { params.o_bias_D = random({c.dim}, type); }
    if (c.qk_norm)
    {
        params.q_norm_weight_E = (random({c.head_dim}, at::kDouble, 0.3) + 1).to(type);
        params.k_norm_weight_E = (random({c.head_dim}, at::kDouble, 0.3) + 1).to(type);
    }
    return params;
}

/// Leaves in the order qkv weight, qkv bias, o weight, o bias, q norm, k norm.
std::vector<at::Tensor> leaves_of(const AttentionParams& p)
{
    return {leaf(p.qkv_weight_TD), leaf(p.qkv_bias_T),      leaf(p.o_weight_DA),
            leaf(p.o_bias_D),      leaf(p.q_norm_weight_E), leaf(p.k_norm_weight_E)};
}

/// [B, heads, S, E] from columns of [B, S, T], normalised and rotated as HF writes it: x cos + rotate_half(x) sin.
at::Tensor head_oracle(const Case& c, const at::Tensor& qkv_BST, std::int64_t first, std::int64_t heads,
                       const at::Tensor& norm_weight, const RopeTable* rope)
{
    at::Tensor x = qkv_BST.narrow(2, first * c.head_dim, heads * c.head_dim)
                       .reshape({c.batch, c.seq_len, heads, c.head_dim})
                       .permute({0, 2, 1, 3});
    if (norm_weight.defined()) { x = x * at::rsqrt((x * x).mean(-1, true) + 1e-6) * norm_weight; }
    if (rope == nullptr) { return x; }
    const std::int64_t half = c.head_dim / 2;
    const at::Tensor cosine = rope->cos_SC.narrow(0, 0, c.seq_len).to(at::kDouble);
    const at::Tensor sine = rope->sin_SC.narrow(0, 0, c.seq_len).to(at::kDouble);
    const at::Tensor turned = at::cat({-x.narrow(3, half, half), x.narrow(3, 0, half)}, 3);
    return x * at::cat({cosine, cosine}, 1) + turned * at::cat({sine, sine}, 1);
}

at::Tensor attention_oracle(const Case& c, const std::vector<at::Tensor>& leaves, const at::Tensor& x_ND,
                            const RopeTable* rope)
{
    at::Tensor qkv = at::matmul(x_ND.view({c.batch, c.seq_len, c.dim}), leaves[0].transpose(0, 1));
    if (leaves[1].defined()) { qkv = qkv + leaves[1]; }
    const at::Tensor q = head_oracle(c, qkv, 0, c.heads, leaves[4], rope);
    at::Tensor k = head_oracle(c, qkv, c.heads, c.kv_heads, leaves[5], rope);
    at::Tensor v = head_oracle(c, qkv, c.heads + c.kv_heads, c.kv_heads, at::Tensor(), nullptr);
    k = k.repeat_interleave(c.heads / c.kv_heads, 1);
    v = v.repeat_interleave(c.heads / c.kv_heads, 1);
    const at::Tensor future = at::ones({c.seq_len, c.seq_len}, at::TensorOptions().dtype(at::kBool)).triu(1);
    const at::Tensor scores = (at::matmul(q, k.transpose(2, 3)) / std::sqrt(double(c.head_dim)))
                                  .masked_fill(future, -std::numeric_limits<double>::infinity());
    const at::Tensor out = at::matmul(at::softmax(scores, -1), v)
                               .permute({0, 2, 1, 3})
                               .reshape({c.batch * c.seq_len, c.heads * c.head_dim});
    const at::Tensor y = at::matmul(out, leaves[2].transpose(0, 1));
    return leaves[3].defined() ? y + leaves[3] : y;
}

at::Tensor zeros_or_none(const at::Tensor& weight) { return weight.defined() ? at::zeros_like(weight) : at::Tensor(); }

AttentionGrads zero_grads(const AttentionParams& p)
{
    AttentionGrads grads;
    grads.qkv_weight_TD = zeros_or_none(p.qkv_weight_TD);
    grads.qkv_bias_T = zeros_or_none(p.qkv_bias_T);
    grads.o_weight_DA = zeros_or_none(p.o_weight_DA);
    grads.o_bias_D = zeros_or_none(p.o_bias_D);
    grads.q_norm_weight_E = zeros_or_none(p.q_norm_weight_E);
    grads.k_norm_weight_E = zeros_or_none(p.k_norm_weight_E);
    return grads;
}

TEST(OpsAttention, MatchesAutogradAndAddsUp)
{
    at::manual_seed(41);
    for (const at::ScalarType type : both_types)
    {
        for (const Case& c : cases)
        {
            SCOPED_TRACE(testing::Message()
                         << "S " << c.seq_len << " H " << c.heads << " K " << c.kv_heads << " " << at::toString(type));
            const RopeTable table = make_rope_table(RopeSpec(), c.head_dim, c.seq_len + 3, type);
            AttentionParams params = make_params(c, type);
            params.rope = c.rope ? &table : nullptr;
            const at::Tensor x = random({c.batch * c.seq_len, c.dim}, type);
            const at::Tensor dy = random({c.batch * c.seq_len, c.dim}, type);

            const at::Tensor x_leaf = leaf(x);
            const std::vector<at::Tensor> leaves = leaves_of(params);
            const at::Tensor y = attention_oracle(c, leaves, x_leaf, params.rope);
            y.backward(dy.to(at::kDouble));

            const OpContext ctx = context(c.batch, c.seq_len);
            AttentionGrads grads = zero_grads(params);
            for (int pass = 0; pass < 2; ++pass)
            {
                AttentionForward forward = attention_forward(ctx, params, x);
                EXPECT_CLOSE(forward.y_MD, y, tolerance(type));
                AttentionBackward backward = attention_backward_input(ctx, params, std::move(forward.saved), dy);
                EXPECT_CLOSE(backward.dx_MD, x_leaf.grad(), tolerance(type));
                attention_backward_weight(ctx, std::move(backward.pending), grads);
            }
            const at::Tensor actual[] = {grads.qkv_weight_TD, grads.qkv_bias_T,      grads.o_weight_DA,
                                         grads.o_bias_D,      grads.q_norm_weight_E, grads.k_norm_weight_E};
            for (std::size_t i = 0; i < leaves.size(); ++i)
            {
                if (!leaves[i].defined() || (c.seq_len == 1 && i >= 4))
                {
                    continue;
                }  // one score: no gradient to q or k
                EXPECT_CLOSE(actual[i], leaves[i].grad() * 2, tolerance(type)) << "leaf " << i;
            }
        }
    }
}

TEST(OpsAttention, DoesNotSeeTheFuture)
{
    at::manual_seed(42);
    const Case c = cases[3];
    const RopeTable table = make_rope_table(RopeSpec(), c.head_dim, c.seq_len, at::kDouble);
    AttentionParams params = make_params(c, at::kDouble);
    params.rope = &table;
    const at::Tensor x = random({c.batch * c.seq_len, c.dim}, at::kDouble);
    const at::Tensor before = attention_forward(context(c.batch, c.seq_len), params, x).y_MD;
    const at::Tensor changed = x.clone();
    changed.view({c.batch, c.seq_len, c.dim}).select(1, 10).add_(1.0);
    const at::Tensor after = attention_forward(context(c.batch, c.seq_len), params, changed).y_MD;
    const at::Tensor difference = (after - before).view({c.batch, c.seq_len, c.dim}).abs().amax({0, 2});
    EXPECT_LT(difference.narrow(0, 0, 10).max().item<double>(), 1e-14);
    EXPECT_GT(difference.narrow(0, 10, c.seq_len - 10).min().item<double>(), 1e-6);
}

TEST(OpsAttention, KeepsProjectionsOutputAndLogSumExp)
{
    const Case c = cases[5];
    const RopeTable table = make_rope_table(RopeSpec(), c.head_dim, c.seq_len, at::kFloat);
    AttentionParams params = make_params(c, at::kFloat);
    params.rope = &table;
    const std::int64_t tokens = c.batch * c.seq_len;
    const AttentionForward forward =
        attention_forward(context(c.batch, c.seq_len), params, random({tokens, c.dim}, at::kFloat));
    std::int64_t elements = 0;
    for (const SavedTensor& saved : forward.saved.tensors())
    {
        elements += std::int64_t(saved.tensor.storage().nbytes()) / 4;
    }
    EXPECT_EQ(elements, tokens * (c.dim + (c.heads + 2 * c.kv_heads) * c.head_dim + c.heads * c.head_dim + c.heads));
}

TEST(OpsRope, TableFollowsTheFp32FormulaAtEveryPrecision)
{
    const RopeTable f32 = make_rope_table(RopeSpec(), 64, 300, at::kFloat);
    const RopeTable f64 = make_rope_table(RopeSpec(), 64, 300, at::kDouble);
    EXPECT_TRUE(f64.cos_SC.equal(f32.cos_SC.to(at::kDouble)));
    EXPECT_TRUE(f64.sin_SC.equal(f32.sin_SC.to(at::kDouble)));

    const at::TensorOptions floats = at::TensorOptions().dtype(at::kFloat);
    const at::Tensor frequencies = 1.0 / at::pow(10000.0, at::arange(0, 64, 2, floats) / 64);
    const at::Tensor angles = at::outer(at::arange(300, floats), frequencies);
    // A frequency may differ by one ulp of fp32 (pow is not rounded correctly everywhere): 300 * 2^-24 radians,
    // plus one of cos.
    EXPECT_LE((f32.cos_SC - at::cos(angles)).abs().max().item<double>(), 300 * 6e-8 + 1.2e-7);
    EXPECT_LE((f32.sin_SC - at::sin(angles)).abs().max().item<double>(), 300 * 6e-8 + 1.2e-7);
}

TEST(OpsRope, Llama3ScalingMatchesTransformers)
{
    RopeSpec spec;
    spec.theta = 500000.0;
    spec.llama3_scaling = true;
    spec.factor = 8.0;
    spec.low_freq_factor = 1.0;
    spec.high_freq_factor = 4.0;
    spec.original_max_positions = 8192;
    const std::vector<float> frequencies = rope_inverse_frequencies(spec, 128);
    ASSERT_EQ(frequencies.size(), 64u);
    // transformers 5, ROPE_INIT_FUNCTIONS["llama3"] with Llama-3.1-8B's configuration, head_dim 128.
    const std::vector<std::pair<std::size_t, double>> golden = {
        {0, 1.0},
        {1, 0.814617217},
        {17, 0.0306345206},
        {28, 0.00321144611},
        {29, 0.00216657063},
        {30, 0.00137189368},
        {31, 0.00085675146},
        {32, 0.000524846022},
        {34, 0.000178507791},
        {35, 9.55621217e-05},
        {36, 7.78465546e-05},
        {40, 3.42810235e-05},
        {63, 3.06892588e-07},
    };
    for (const auto& [i, expected] : golden) { EXPECT_NEAR(frequencies[i] / expected, 1.0, 1.3e-7) << i; }
}

}  // namespace
}  // namespace plimsoll::nn
