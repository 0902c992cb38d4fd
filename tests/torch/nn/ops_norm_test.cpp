// LayerNorm and RMSNorm against autograd. N rows, D columns.

#include <ATen/ops/rsqrt.h>

#include "nn/ops/norm.hpp"
#include "torch/nn/op_test_support.hpp"

namespace plimsoll::nn
{
namespace
{

struct Case
{
    NormKind kind;
    std::int64_t rows, dim;
    bool bias;
    double eps;
    double offset;  ///< mean of x
};

const Case cases[] = {
    {NormKind::rms_norm, 1, 1, false, 1e-6, 0},      {NormKind::layer_norm, 1, 3, true, 1e-5, 0},
    {NormKind::rms_norm, 1, 768, false, 1e-5, 0},    {NormKind::layer_norm, 63, 33, true, 1e-5, 0},
    {NormKind::layer_norm, 65, 48, false, 1e-3, 0},  {NormKind::rms_norm, 200, 127, false, 1e-1, 0},
    {NormKind::layer_norm, 5000, 19, true, 1e-5, 0}, {NormKind::layer_norm, 7, 512, true, 1e-5, 100},
};

struct Inputs
{
    NormParams params;
    at::Tensor x, dy, residual;
};

Inputs make_inputs(const Case& c, at::ScalarType type)
{
    Inputs in;
    in.params.kind = c.kind;
    in.params.eps = c.eps;
    in.params.weight_D = (random({c.dim}, at::kDouble, 0.3) + 1).to(type);
    if (c.bias) { in.params.bias_D = random({c.dim}, type); }
    in.x = (random({c.rows, c.dim}, at::kDouble) + c.offset).to(type);
    in.dy = random({c.rows, c.dim}, type);
    in.residual = random({c.rows, c.dim}, type);
    return in;
}

struct Oracle
{
    at::Tensor y, x, weight, bias;  ///< y and leaves after backward
};

Oracle run_oracle(const Case& c, const Inputs& in)
{
    Oracle o;
    o.x = leaf(in.x);
    o.weight = leaf(in.params.weight_D);
    o.bias = leaf(in.params.bias_D);
    at::Tensor centred = c.kind == NormKind::layer_norm ? o.x - o.x.mean(-1, true) : o.x;
    o.y = centred * at::rsqrt((centred * centred).mean(-1, true) + c.eps) * o.weight;
    if (c.bias) { o.y = o.y + o.bias; }
    o.y.backward(in.dy.to(at::kDouble));
    return o;
}

NormGrads zero_grads(const NormParams& params)
{
    NormGrads grads;
    grads.weight_D = at::zeros_like(params.weight_D);
    if (params.bias_D.defined()) { grads.bias_D = at::zeros_like(params.bias_D); }
    return grads;
}

/// A mean of 100 costs a row 100 times its rounding in x - mean, in fp32 as in fp64.
double gate(const Case& c, at::ScalarType type) { return tolerance(type) * (1 + c.offset); }

TEST(OpsNorm, MatchesAutogradForwardAndBackward)
{
    at::manual_seed(1);
    for (const at::ScalarType type : both_types)
    {
        for (const Case& c : cases)
        {
            SCOPED_TRACE(testing::Message() << "rows " << c.rows << " dim " << c.dim << " type " << at::toString(type));
            const Inputs in = make_inputs(c, type);
            const Oracle oracle = run_oracle(c, in);
            const OpContext ctx = context(1, c.rows);
            NormForward forward = norm_forward(ctx, in.params, in.x);
            EXPECT_CLOSE(forward.y_ND, oracle.y, gate(c, type));
            NormBackward backward = norm_backward_input(ctx, in.params, std::move(forward.saved), in.dy.clone());
            // One column: the gradient is eps / (x^2 + eps) of its parts, all else cancels.
            if (c.dim > 1) { EXPECT_CLOSE(backward.dx_ND, oracle.x.grad(), 4 * gate(c, type)); }
            NormGrads grads = zero_grads(in.params);
            norm_backward_weight(ctx, std::move(backward.pending), grads);
            EXPECT_CLOSE(grads.weight_D, oracle.weight.grad(), gate(c, type));
            if (c.bias) { EXPECT_CLOSE(grads.bias_D, oracle.bias.grad(), gate(c, type)); }
        }
    }
}

TEST(OpsNorm, EpsKeepsRowsOfZerosFinite)
{
    NormParams params;
    params.eps = 1e-5;
    params.weight_D = at::zeros({8}) + 2;
    const at::Tensor x = at::zeros({3, 8});
    NormForward forward = norm_forward(context(1, 3), params, x);
    EXPECT_EQ(forward.y_ND.abs().max().item<double>(), 0.0);
    NormBackward backward = norm_backward_input(context(1, 3), params, std::move(forward.saved), at::zeros({3, 8}) + 1);
    EXPECT_NEAR(backward.dx_ND.max().item<double>(), 2 / std::sqrt(1e-5), 1e-3);
}

TEST(OpsNorm, AddsTheResidualGradientInPlace)
{
    at::manual_seed(2);
    for (const Case& c : cases)
    {
        const Inputs in = make_inputs(c, at::kDouble);
        const OpContext ctx = context(1, c.rows);
        at::Tensor plain =
            norm_backward_input(ctx, in.params, norm_forward(ctx, in.params, in.x).saved, in.dy.clone()).dx_ND;
        const at::Tensor residual = in.residual.clone();
        const at::Tensor dy = in.dy.clone();
        NormBackward added =
            norm_backward_input_add(ctx, in.params, norm_forward(ctx, in.params, in.x).saved, dy, residual);
        EXPECT_EQ(added.dx_ND.data_ptr(), residual.data_ptr());
        EXPECT_TRUE(dy.equal(in.dy));
        EXPECT_CLOSE(added.dx_ND, plain + in.residual, 1e-14);
        const at::Tensor kept = in.residual.clone();
        NormBackward beside = norm_backward_input_add(ctx, in.params, norm_forward(ctx, in.params, in.x).saved, dy, kept,
                                                      WrittenOver::dy);
        EXPECT_EQ(beside.dx_ND.data_ptr(), dy.data_ptr());
        EXPECT_TRUE(kept.equal(in.residual));
        EXPECT_TRUE(beside.dx_ND.equal(added.dx_ND));
    }
}

TEST(OpsNorm, ReusesTheBufferOfDy)
{
    const Inputs in = make_inputs(cases[3], at::kFloat);
    NormForward forward = norm_forward(context(1, 63), in.params, in.x);
    const void* buffer = in.dy.data_ptr();
    NormBackward backward = norm_backward_input(context(1, 63), in.params, std::move(forward.saved), in.dy);
    EXPECT_EQ(backward.dx_ND.data_ptr(), buffer);
}

TEST(OpsNorm, WeightGradientsAddUpAndUndefinedOnesAreSkipped)
{
    at::manual_seed(3);
    const Case& c = cases[3];
    const Inputs in = make_inputs(c, at::kDouble);
    const Oracle oracle = run_oracle(c, in);
    const OpContext ctx = context(1, c.rows);
    NormGrads grads = zero_grads(in.params);
    for (int pass = 0; pass < 2; ++pass)
    {
        NormForward forward = norm_forward(ctx, in.params, in.x);
        NormBackward backward = norm_backward_input(ctx, in.params, std::move(forward.saved), in.dy.clone());
        norm_backward_weight(ctx, std::move(backward.pending), grads);
    }
    EXPECT_CLOSE(grads.weight_D, oracle.weight.grad() * 2, 1e-12);
    EXPECT_CLOSE(grads.bias_D, oracle.bias.grad() * 2, 1e-12);

    NormGrads frozen;
    NormForward forward = norm_forward(ctx, in.params, in.x);
    NormBackward backward = norm_backward_input(ctx, in.params, std::move(forward.saved), in.dy.clone());
    norm_backward_weight(ctx, std::move(backward.pending), frozen);
    EXPECT_FALSE(frozen.weight_D.defined());
}

TEST(OpsNorm, BitsDoNotDependOnTheNumberOfThreads)
{
    at::manual_seed(4);
    for (const at::ScalarType type : both_types)
    {
        for (const Case& c : cases)
        {
            const Inputs in = make_inputs(c, type);
            const OpContext ctx = context(1, c.rows);
            std::vector<at::Tensor> first;
            for (const int threads : {1, 2, 3})
            {
                const ThreadsGuard guard(threads);
                NormForward forward = norm_forward(ctx, in.params, in.x);
                const at::Tensor y = forward.y_ND;
                NormBackward backward = norm_backward_input(ctx, in.params, std::move(forward.saved), in.dy.clone());
                NormGrads grads = zero_grads(in.params);
                norm_backward_weight(ctx, std::move(backward.pending), grads);
                const std::vector<at::Tensor> all = {y, backward.dx_ND, grads.weight_D};
                if (first.empty()) { first = all; }
                for (std::size_t i = 0; i < all.size(); ++i) { EXPECT_TRUE(all[i].equal(first[i])) << threads; }
            }
        }
    }
}

}  // namespace
}  // namespace plimsoll::nn
