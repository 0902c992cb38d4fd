// Every operation in bf16 against itself in fp64 on the same rounded inputs; in fp64 it agrees with autograd to 1e-12 (the other
// files here). N rows, D model, F ffn, V vocabulary.
//
// Gates, of the largest magnitude: a result that is rounded once is off by half an ulp, at most 2^-8 of itself. Where bf16 values
// lie between (the gradient behind an activation, rotated heads), each rounding adds as much at random: up to four of them, 2^-6. A sum of products of values that bf16 holds is made in fp32, so it has fp32's gate.

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/t.h>

#include "nn/ops/attention.hpp"
#include "nn/ops/dropout.hpp"
#include "nn/ops/embedding.hpp"
#include "nn/ops/head_loss.hpp"
#include "nn/ops/linear.hpp"
#include "nn/ops/mlp.hpp"
#include "nn/ops/norm.hpp"
#include "nn/ops/residual.hpp"
#include "nn/optimizer.hpp"
#include "nn/ops/tensor_view.hpp"
#include "torch/nn/op_test_support.hpp"

namespace plimsoll::nn
{
namespace
{

constexpr double rounded_once = 1.0 / 256;
constexpr double rounded_often = 1.0 / 64;

at::Tensor in_fp64(const at::Tensor& tensor) { return tensor.defined() ? tensor.to(at::kDouble) : tensor; }

at::Tensor sums_like(const at::Tensor& tensor)
{
    const at::ScalarType type = tensor.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    return tensor.defined() ? at::zeros(tensor.sizes(), at::TensorOptions().dtype(type)) : tensor;
}

TEST(OpsBf16, LinearAddsUpInFp32)
{
    at::manual_seed(1);
    struct Case
    {
        std::int64_t rows, in, out;
    };
    // The last one has several blocks of tokens and of weight rows, the first of each not full.
    for (const Case& c : {Case{1, 1, 1}, Case{7, 33, 65}, Case{600, 4100, 70}, Case{1030, 40, 9000}})
    {
        SCOPED_TRACE(testing::Message() << c.rows << " x " << c.in << " x " << c.out);
        LinearParams params;
        params.weight_OI = random_weight(c.out, c.in, at::kBFloat16);
        params.bias_O = random({c.out}, at::kBFloat16);
        const at::Tensor x = random({c.rows, c.in}, at::kBFloat16), dy = random({c.rows, c.out}, at::kBFloat16);
        LinearGrads grads;
        grads.weight_OI = sums_like(params.weight_OI);
        grads.bias_O = sums_like(params.bias_O);
        const OpContext ctx = context(1, c.rows);
        LinearForward forward = linear_forward(ctx, params, x);
        EXPECT_EQ(forward.y_NO.scalar_type(), at::kBFloat16);
        EXPECT_CLOSE(forward.y_NO, at::mm(in_fp64(x), at::t(in_fp64(params.weight_OI))) + in_fp64(params.bias_O), rounded_once);
        LinearBackward backward = linear_backward_input(ctx, params, std::move(forward.saved), dy);
        EXPECT_CLOSE(backward.dx_NI, at::mm(in_fp64(dy), in_fp64(params.weight_OI)), rounded_once);
        linear_backward_weight(ctx, std::move(backward.pending), grads);
        EXPECT_CLOSE(grads.weight_OI, at::mm(at::t(in_fp64(dy)), in_fp64(x)), tolerance(at::kFloat));
        EXPECT_CLOSE(grads.bias_O, in_fp64(dy).sum(0), tolerance(at::kFloat));
    }
}

TEST(OpsBf16, TinyGradientsAddUpBesideALargeOne)
{
    // In bf16 1 + 2^-12 is 1: each of the small ones would be lost.
    const at::Tensor x = at::zeros({1, 3}, at::TensorOptions().dtype(at::kBFloat16)) + 1;
    const at::Tensor sum = at::zeros({2, 3}), bias = at::zeros({2});
    const auto add = [&](double dy)
    {
        const at::Tensor dy_NO = at::zeros({1, 2}, at::TensorOptions().dtype(at::kBFloat16)) + dy;
        add_weight_gradient(x, dy_NO, sum, "product");
        add_bias_gradient(dy_NO, bias);
    };
    add(1.0);
    for (int step = 0; step < 15; ++step) { add(0x1p-12); }
    EXPECT_EQ(sum.min().item<float>(), 1 + 15 * 0x1p-12F);
    EXPECT_EQ(sum.max().item<float>(), 1 + 15 * 0x1p-12F);
    EXPECT_EQ(bias.min().item<float>(), 1 + 15 * 0x1p-12F);
}

TEST(OpsBf16, ProductsAgreeForEveryNumberOfThreads)
{
    at::manual_seed(2);
    const at::Tensor x = random({530, 200}, at::kBFloat16), weight = random_weight(300, 200, at::kBFloat16);
    at::Tensor first;
    for (const int threads : {1, 2, 3})
    {
        const ThreadsGuard guard(threads);
        const at::Tensor y = project(x, weight, at::Tensor(), "product");
        if (!first.defined()) { first = y; }
        EXPECT_CLOSE(y, in_fp64(first), rounded_once);
        EXPECT_CLOSE(input_gradient(y, weight, "product"), at::mm(in_fp64(y), in_fp64(weight)), rounded_once);
    }
}

TEST(OpsBf16, NormsHaveStatisticsInFp32)
{
    at::manual_seed(3);
    for (const NormKind kind : {NormKind::rms_norm, NormKind::layer_norm})
    {
        for (const std::int64_t rows : {1, 65, 300})
        {
            const std::int64_t dim = 96;
            NormParams params;
            params.kind = kind;
            params.weight_D = (random({dim}, at::kDouble, 0.3) + 1).to(at::kBFloat16);
            if (kind == NormKind::layer_norm) { params.bias_D = random({dim}, at::kBFloat16); }
            NormParams exact = params;
            exact.weight_D = in_fp64(params.weight_D);
            exact.bias_D = in_fp64(params.bias_D);
            // A mean of 3: in bf16 statistics it would cost two digits.
            const at::Tensor x = (random({rows, dim}, at::kDouble) + 3).to(at::kBFloat16);
            const at::Tensor dy = random({rows, dim}, at::kBFloat16), residual = random({rows, dim}, at::kBFloat16);
            const OpContext ctx = context(1, rows);
            NormForward forward = norm_forward(ctx, params, x), expected = norm_forward(ctx, exact, in_fp64(x));
            EXPECT_EQ(forward.saved.rstd_N.scalar_type(), at::kFloat);
            EXPECT_CLOSE(forward.saved.rstd_N, expected.saved.rstd_N, tolerance(at::kFloat));
            EXPECT_CLOSE(forward.y_ND, expected.y_ND, rounded_once);
            NormBackward backward =
                norm_backward_input_add(ctx, params, std::move(forward.saved), dy, residual.clone());
            NormBackward wanted = norm_backward_input_add(ctx, exact, std::move(expected.saved), in_fp64(dy), in_fp64(residual));
            EXPECT_CLOSE(backward.dx_ND, wanted.dx_ND, rounded_once);
            NormGrads grads, sums;
            grads.weight_D = sums_like(params.weight_D);
            sums.weight_D = sums_like(exact.weight_D);
            if (params.bias_D.defined())
            {
                grads.bias_D = sums_like(params.bias_D);
                sums.bias_D = sums_like(exact.bias_D);
            }
            norm_backward_weight(ctx, std::move(backward.pending), grads);
            norm_backward_weight(ctx, std::move(wanted.pending), sums);
            EXPECT_EQ(grads.weight_D.scalar_type(), at::kFloat);
            EXPECT_CLOSE(grads.weight_D, sums.weight_D, 10 * tolerance(at::kFloat));  // x - mean: see the norm's own test
            if (params.bias_D.defined()) { EXPECT_CLOSE(grads.bias_D, sums.bias_D, tolerance(at::kFloat)); }
        }
    }
}

TEST(OpsBf16, MlpOfEveryActivation)
{
    at::manual_seed(4);
    for (const Activation activation : {Activation::gelu_tanh, Activation::gelu_erf, Activation::swiglu})
    {
        const std::int64_t rows = 70, dim = 48, ffn = 80, pre = activation == Activation::swiglu ? 2 * ffn : ffn;
        MlpParams params;
        params.activation = activation;
        params.in_weight_GD = random_weight(pre, dim, at::kBFloat16);
        params.in_bias_G = random({pre}, at::kBFloat16, 0.1);
        params.down_weight_DF = random_weight(dim, ffn, at::kBFloat16);
        MlpParams exact = params;
        exact.in_weight_GD = in_fp64(params.in_weight_GD);
        exact.in_bias_G = in_fp64(params.in_bias_G);
        exact.down_weight_DF = in_fp64(params.down_weight_DF);
        const at::Tensor x = random({rows, dim}, at::kBFloat16), dy = random({rows, dim}, at::kBFloat16);
        const OpContext ctx = context(1, rows);
        const auto run = [&](const MlpParams& with, const at::Tensor& in, const at::Tensor& gradient)
        {
            MlpForward forward = mlp_forward(ctx, with, in);
            const at::Tensor y = forward.y_MD;
            MlpBackward backward = mlp_backward_input(ctx, with, std::move(forward.saved), gradient);
            MlpGrads grads;
            grads.in_weight_GD = sums_like(with.in_weight_GD);
            grads.in_bias_G = sums_like(with.in_bias_G);
            grads.down_weight_DF = sums_like(with.down_weight_DF);
            mlp_backward_weight(ctx, std::move(backward.pending), grads);
            return std::vector<at::Tensor>{y, backward.dx_MD, grads.in_weight_GD, grads.in_bias_G, grads.down_weight_DF};
        };
        const std::vector<at::Tensor> got = run(params, x, dy), expected = run(exact, in_fp64(x), in_fp64(dy));
        for (std::size_t i = 0; i < got.size(); ++i) { EXPECT_CLOSE(got[i], expected[i], rounded_often) << i; }
    }
}

struct AttentionCase
{
    std::int64_t batch, seq_len, dim, heads, kv_heads, head_dim;
    bool rope, qk_norm;
};

TEST(OpsBf16, Attention)
{
    at::manual_seed(5);
    for (const AttentionCase& c : {AttentionCase{1, 7, 12, 3, 3, 4, false, false}, AttentionCase{3, 17, 24, 4, 2, 6, true, false},
                                   AttentionCase{2, 65, 24, 4, 2, 8, true, true}, AttentionCase{1, 300, 16, 2, 1, 8, true, false},
                                   AttentionCase{1, 130, 16, 2, 2, 16, false, true}})
    {
        SCOPED_TRACE(testing::Message() << "seq_len " << c.seq_len << " qk_norm " << c.qk_norm);
        const std::int64_t rows = (c.heads + 2 * c.kv_heads) * c.head_dim, tokens = c.batch * c.seq_len;
        RopeSpec rope;
        const RopeTable narrow_table = make_rope_table(rope, c.head_dim, c.seq_len, at::kFloat);
        const RopeTable wide_table = make_rope_table(rope, c.head_dim, c.seq_len, at::kDouble);
        AttentionParams params;
        params.heads = c.heads;
        params.kv_heads = c.kv_heads;
        params.head_dim = c.head_dim;
        params.qkv_weight_TD = random_weight(rows, c.dim, at::kBFloat16);
        params.qkv_bias_T = random({rows}, at::kBFloat16, 0.1);
        params.o_weight_DA = random_weight(c.dim, c.heads * c.head_dim, at::kBFloat16);
        if (c.qk_norm)
        {
            params.q_norm_weight_E = (random({c.head_dim}, at::kDouble, 0.3) + 1).to(at::kBFloat16);
            params.k_norm_weight_E = (random({c.head_dim}, at::kDouble, 0.3) + 1).to(at::kBFloat16);
        }
        if (c.rope) { params.rope = &narrow_table; }
        AttentionParams exact = params;
        exact.qkv_weight_TD = in_fp64(params.qkv_weight_TD);
        exact.qkv_bias_T = in_fp64(params.qkv_bias_T);
        exact.o_weight_DA = in_fp64(params.o_weight_DA);
        exact.q_norm_weight_E = in_fp64(params.q_norm_weight_E);
        exact.k_norm_weight_E = in_fp64(params.k_norm_weight_E);
        if (c.rope) { exact.rope = &wide_table; }
        const at::Tensor x = random({tokens, c.dim}, at::kBFloat16), dy = random({tokens, c.dim}, at::kBFloat16);
        const OpContext ctx = context(c.batch, c.seq_len);
        const auto run = [&](const AttentionParams& with, const at::Tensor& in, const at::Tensor& gradient)
        {
            AttentionForward forward = attention_forward(ctx, with, in);
            const at::Tensor y = forward.y_MD;
            const at::Tensor lse = forward.saved.lse_BHS;
            AttentionBackward backward = attention_backward_input(ctx, with, std::move(forward.saved), gradient);
            AttentionGrads grads;
            grads.qkv_weight_TD = sums_like(with.qkv_weight_TD);
            grads.o_weight_DA = sums_like(with.o_weight_DA);
            if (c.qk_norm)
            {
                grads.q_norm_weight_E = sums_like(with.q_norm_weight_E);
                grads.k_norm_weight_E = sums_like(with.k_norm_weight_E);
            }
            attention_backward_weight(ctx, std::move(backward.pending), grads);
            std::vector<at::Tensor> all = {y, lse, backward.dx_MD, grads.qkv_weight_TD, grads.o_weight_DA};
            if (c.qk_norm) { all.insert(all.end(), {grads.q_norm_weight_E, grads.k_norm_weight_E}); }
            return all;
        };
        const std::vector<at::Tensor> got = run(params, x, dy), expected = run(exact, in_fp64(x), in_fp64(dy));
        EXPECT_EQ(got[1].scalar_type(), at::kFloat);
        for (std::size_t i = 0; i < got.size(); ++i) { EXPECT_CLOSE(got[i], expected[i], rounded_often) << i; }
    }
}

TEST(OpsBf16, EmbeddingGradientsAreSummedInFp32)
{
    at::manual_seed(6);
    EmbeddingParams params;
    params.tokens_VD = random({5, 24}, at::kBFloat16);
    params.positions_PD = random({300, 24}, at::kBFloat16);
    const at::Tensor ids = at::randint(0, 5, {2, 300}, at::TensorOptions().dtype(at::kLong));
    const OpContext ctx = context(2, 300);
    EmbeddingForward forward = embedding_forward(ctx, params, ids);
    const at::Tensor rows = ids.view({600});
    EXPECT_CLOSE(forward.y_MD, in_fp64(params.tokens_VD).index_select(0, rows) + in_fp64(params.positions_PD).repeat({2, 1}), rounded_once);
    // One id takes 120 rows: in bf16 the sum would lose what is below a hundredth of it.
    const at::Tensor dy = random({600, 24}, at::kBFloat16);
    EmbeddingGrads grads;
    grads.tokens_VD = sums_like(params.tokens_VD);
    grads.positions_PD = sums_like(params.positions_PD);
    embedding_backward_weight(ctx, embedding_backward_input(ctx, std::move(forward.saved), dy), grads);
    at::Tensor expected = at::zeros({5, 24}, at::TensorOptions().dtype(at::kDouble));
    expected.index_add_(0, rows, in_fp64(dy));
    EXPECT_CLOSE(grads.tokens_VD, expected, tolerance(at::kFloat));
    EXPECT_CLOSE(grads.positions_PD, in_fp64(dy).view({2, 300, 24}).sum(0), tolerance(at::kFloat));
}

TEST(OpsBf16, LogitsAndLossAreFp32)
{
    at::manual_seed(7);
    for (const std::int64_t vocab : {33, 9000})
    {
        HeadLossParams params;
        params.weight_VD = random_weight(vocab, 40, at::kBFloat16);
        params.scale = 1.0 / 64;
        params.chunks = 3;
        params.label_smoothing = 0.1;
        params.z_loss = 1e-3;
        HeadLossParams exact = params;
        exact.weight_VD = in_fp64(params.weight_VD);
        const at::Tensor x = random({50, 40}, at::kBFloat16, 3);
        const at::Tensor labels = at::randint(0, vocab, {50}, at::TensorOptions().dtype(at::kLong));
        const at::Tensor mask = at::randint(0, 2, {50}, at::TensorOptions().dtype(at::kByte));
        const OpContext ctx = context(1, 50);
        HeadLossGrads grads, sums;
        grads.weight_VD = sums_like(params.weight_VD);
        sums.weight_VD = sums_like(exact.weight_VD);
        const HeadLossResult got = head_loss(ctx, params, LossMode::train, x.clone(), labels, mask, grads);
        const HeadLossResult expected = head_loss(ctx, exact, LossMode::train, in_fp64(x), labels, mask, sums);
        // Logits rounded to bf16 would be off by up to 2^-5 each.
        EXPECT_NEAR(got.loss_sum, expected.loss_sum, tolerance(at::kFloat) * std::abs(expected.loss_sum));
        EXPECT_EQ(got.count, expected.count);
        EXPECT_EQ(got.dx_MD.scalar_type(), at::kBFloat16);
        EXPECT_CLOSE(got.dx_MD, expected.dx_MD, rounded_once);
        EXPECT_CLOSE(grads.weight_VD, sums.weight_VD, 10 * tolerance(at::kFloat));
    }
}

TEST(OpsBf16, DropoutAndResidualRoundOnce)
{
    at::manual_seed(8);
    const at::Tensor x = random({60, 33}, at::kBFloat16), branch = random({60, 33}, at::kBFloat16);
    OpContext ctx = context(2, 30);
    ctx.seed = 5;
    const Dropout dropout = {0.3, DropoutSite::mlp, 1};
    const auto rounded = [](const at::Tensor& exact) { return exact.to(at::kFloat).to(at::kBFloat16); };
    EXPECT_TRUE(residual_add(ctx, x, branch.clone()).equal(rounded(in_fp64(x) + in_fp64(branch))));
    // The same masks as in fp64.
    EXPECT_CLOSE(dropout_add(ctx, dropout, x, branch.clone()), dropout_add(ctx, dropout, in_fp64(x), in_fp64(branch)), rounded_once);
    EXPECT_CLOSE(dropout_backward(ctx, dropout, x), dropout_backward(ctx, dropout, in_fp64(x)), rounded_once);
}

TEST(OpsBf16, UpdatesBelowAnUlpMoveTheMasterAndThenTheParameter)
{
    const at::Tensor master = at::zeros({40000}) + 1, grad = at::zeros({40000}), m = at::zeros({40000}), v = at::zeros({40000});
    const at::Tensor rounded = master.to(at::kBFloat16);
    AdamWStep step;
    step.lr = 1e-4;  // half an ulp below 1 is 2^-9, twenty updates
    step.after = AfterUpdate::zero_gradient;
    for (step.step = 1; step.step <= 100; ++step.step)
    {
        grad.fill_(1);
        adamw_update(step, buffer_view(master), buffer_view(grad), buffer_view(m), buffer_view(v), buffer_view(rounded));
        ASSERT_TRUE(rounded.equal(master.to(at::kBFloat16))) << step.step;
        if (step.step == 10) { EXPECT_EQ(rounded.max().item<float>(), 1.0F); }
    }
    EXPECT_NEAR(master.min().item<double>(), 1 - 100 * 1e-4, 1e-5);
    EXPECT_EQ(rounded.max().item<float>(), at::BFloat16(0.99F));
}

}  // namespace
}  // namespace plimsoll::nn
