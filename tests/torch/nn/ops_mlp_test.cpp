// GELU and SwiGLU layers against autograd. N rows, D model, F ffn.

#include <ATen/ops/erf.h>
#include <ATen/ops/exp.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tanh.h>

#include <cmath>

#include "nn/kernels/activation_kernels.hpp"
#include "nn/ops/mlp.hpp"
#include "torch/nn/op_test_support.hpp"

namespace plimsoll::nn
{
namespace
{

struct Case
{
    Activation activation;
    std::int64_t rows, dim, ffn;
    bool bias;
};
const Case cases[] = {
    {Activation::gelu_tanh, 1, 1, 1, true},  {Activation::gelu_tanh, 70, 24, 97, true},
    {Activation::gelu_erf, 1, 8, 3, false},  {Activation::gelu_erf, 70, 24, 97, true},
    {Activation::swiglu, 1, 3, 1, false},    {Activation::swiglu, 70, 24, 61, false},
    {Activation::swiglu, 33, 16, 128, true},
};

at::Tensor activation_oracle(Activation activation, const at::Tensor& pre)
{
    if (activation == Activation::swiglu)
    {
        const std::int64_t ffn = pre.size(1) / 2;
        const at::Tensor gate = pre.narrow(1, 0, ffn);
        return gate / (1 + at::exp(-gate)) * pre.narrow(1, ffn, ffn);
    }
    if (activation == Activation::gelu_erf) { return 0.5 * pre * (1 + at::erf(pre / std::sqrt(2.0))); }
    return 0.5 * pre * (1 + at::tanh(std::sqrt(2.0 / M_PI) * (pre + 0.044715 * pre * pre * pre)));
}

TEST(OpsMlp, MatchesAutogradAndAddsUp)
{
    at::manual_seed(21);
    for (const at::ScalarType type : both_types)
    {
        for (const Case& c : cases)
        {
            SCOPED_TRACE(testing::Message() << "activation " << int(c.activation) << " ffn " << c.ffn);
            const std::int64_t pre_columns = c.activation == Activation::swiglu ? 2 * c.ffn : c.ffn;
            MlpParams params;
            params.activation = c.activation;
            params.in_weight_GD = random_weight(pre_columns, c.dim, type);
            params.down_weight_DF = random_weight(c.dim, c.ffn, type);
            if (c.bias)
            {
                params.in_bias_G = random({pre_columns}, type);
                params.down_bias_D = random({c.dim}, type);
            }
            const at::Tensor x = random({c.rows, c.dim}, type, 2.0);
            const at::Tensor dy = random({c.rows, c.dim}, type);

            const at::Tensor x_leaf = leaf(x), in_weight = leaf(params.in_weight_GD), in_bias = leaf(params.in_bias_G);
            const at::Tensor down_weight = leaf(params.down_weight_DF), down_bias = leaf(params.down_bias_D);
            at::Tensor pre = at::matmul(x_leaf, in_weight.transpose(0, 1));
            if (c.bias) { pre = pre + in_bias; }
            at::Tensor y = at::matmul(activation_oracle(c.activation, pre), down_weight.transpose(0, 1));
            if (c.bias) { y = y + down_bias; }
            y.backward(dy.to(at::kDouble));

            const OpContext ctx = context(1, c.rows);
            MlpGrads grads;
            grads.in_weight_GD = at::zeros_like(params.in_weight_GD);
            grads.down_weight_DF = at::zeros_like(params.down_weight_DF);
            if (c.bias)
            {
                grads.in_bias_G = at::zeros_like(params.in_bias_G);
                grads.down_bias_D = at::zeros_like(params.down_bias_D);
            }
            for (int pass = 0; pass < 2; ++pass)
            {
                MlpForward forward = mlp_forward(ctx, params, x);
                EXPECT_CLOSE(forward.y_MD, y, tolerance(type));
                MlpBackward backward = mlp_backward_input(ctx, params, std::move(forward.saved), dy);
                EXPECT_CLOSE(backward.dx_MD, x_leaf.grad(), tolerance(type));
                mlp_backward_weight(ctx, std::move(backward.pending), grads);
            }
            EXPECT_CLOSE(grads.in_weight_GD, in_weight.grad() * 2, tolerance(type));
            EXPECT_CLOSE(grads.down_weight_DF, down_weight.grad() * 2, tolerance(type));
            if (c.bias)
            {
                EXPECT_CLOSE(grads.in_bias_G, in_bias.grad() * 2, tolerance(type));
                EXPECT_CLOSE(grads.down_bias_D, down_bias.grad() * 2, tolerance(type));
            }
        }
    }
}

TEST(OpsMlp, KeepsOnlyInputAndPreActivation)
{
    MlpParams params;
    params.in_weight_GD = random_weight(12, 4, at::kFloat);
    params.down_weight_DF = random_weight(4, 6, at::kFloat);
    MlpForward forward = mlp_forward(context(1, 5), params, random({5, 4}, at::kFloat));
    const std::vector<SavedTensor> saved = forward.saved.tensors();
    ASSERT_EQ(saved.size(), 2u);
    EXPECT_EQ(saved[0].tensor.numel(), 5 * 4);
    EXPECT_EQ(saved[1].tensor.numel(), 5 * 12);
    const void* pre = saved[1].tensor.data_ptr();
    MlpBackward backward =
        mlp_backward_input(context(1, 5), params, std::move(forward.saved), random({5, 4}, at::kFloat));
    EXPECT_EQ(backward.pending.dpre_NG.data_ptr(), pre);  // written over, not beside
}

/// Every finite input, far beyond where exp over- or underflows.
TEST(OpsMlp, ActivationsAreAccurateAndFiniteOverTheWholeRange)
{
    const at::Tensor grid = at::linspace(-200, 200, 80001, at::TensorOptions().dtype(at::kDouble));
    for (const kernels::GeluKind kind : {kernels::GeluKind::tanh, kernels::GeluKind::erf})
    {
        const Activation activation = kind == kernels::GeluKind::tanh ? Activation::gelu_tanh : Activation::gelu_erf;
        const at::Tensor x32 = grid.to(at::kFloat);
        const at::Tensor x = leaf(x32);
        const at::Tensor y = activation_oracle(activation, x);
        y.sum().backward();
        at::Tensor value = x32.clone();
        at::Tensor slope = at::zeros_like(x32) + 1;
        kernels::gelu_backward(kind, value.mutable_data_ptr<float>(), slope.mutable_data_ptr<float>(), value.numel());
        const at::Tensor out = at::zeros_like(x32);
        kernels::gelu_forward(kind, x32.const_data_ptr<float>(), out.mutable_data_ptr<float>(), out.numel());
        EXPECT_TRUE(out.equal(value));
        // 4 ulp of max(|x|, 1): x and the gate each bring roundings of that size.
        const at::Tensor size = x.detach().abs().clamp_min(1);
        EXPECT_LE(((value.to(at::kDouble) - y.detach()).abs() / size).max().item<double>(), 4 * 6e-8);
        EXPECT_LE((slope.to(at::kDouble) - x.grad()).abs().max().item<double>(), 5e-7);
    }
    const at::Tensor gate = grid.to(at::kFloat);
    for (std::int64_t i = 0; i < gate.numel(); i += 97)
    {
        float pre[2] = {gate.const_data_ptr<float>()[i], 1.0f};
        float gradient = 1.0f;
        const double g = pre[0];
        const double sigmoid = 1 / (1 + std::exp(-g));
        kernels::swiglu_backward(pre, &gradient, 1);
        EXPECT_NEAR(gradient, g * sigmoid, 3e-7 * std::max(1.0, std::abs(g)));
        EXPECT_NEAR(pre[0], sigmoid * (1 + g * (1 - sigmoid)), 5e-7);
        EXPECT_NEAR(pre[1], g * sigmoid, 3e-7 * std::max(1.0, std::abs(g)));
    }
}

}  // namespace
}  // namespace plimsoll::nn
