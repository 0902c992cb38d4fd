// The linear layer and the residual connection against autograd. N rows, I inputs, O outputs.

#include <ATen/ops/einsum.h>

#include "nn/ops/linear.hpp"
#include "nn/ops/residual.hpp"
#include "torch/nn/op_test_support.hpp"

namespace plimsoll::nn
{
namespace
{

struct Case
{
    std::int64_t rows, in, out;
    bool bias;
};
const Case cases[] = {{1, 1, 1, true}, {1, 7, 5, false}, {3, 1, 2, true}, {130, 33, 65, true}, {64, 96, 31, false}};

TEST(OpsLinear, MatchesAutogradAndAddsUp)
{
    at::manual_seed(11);
    for (const at::ScalarType type : both_types)
    {
        for (const Case& c : cases)
        {
            LinearParams params;
            params.weight_OI = random_weight(c.out, c.in, type);
            if (c.bias) { params.bias_O = random({c.out}, type); }
            const at::Tensor x = random({c.rows, c.in}, type);
            const at::Tensor dy = random({c.rows, c.out}, type);

            const at::Tensor x_leaf = leaf(x);
            const at::Tensor weight = leaf(params.weight_OI);
            const at::Tensor bias = leaf(params.bias_O);
            at::Tensor y = at::einsum("ni,oi->no", {x_leaf, weight});
            if (c.bias) { y = y + bias; }
            y.backward(dy.to(at::kDouble));

            const OpContext ctx = context(1, c.rows);
            LinearGrads grads;
            grads.weight_OI = at::zeros_like(params.weight_OI);
            if (c.bias) { grads.bias_O = at::zeros_like(params.bias_O); }
            for (int pass = 0; pass < 2; ++pass)
            {
                LinearForward forward = linear_forward(ctx, params, x);
                EXPECT_CLOSE(forward.y_NO, y, tolerance(type));
                LinearBackward backward = linear_backward_input(ctx, params, std::move(forward.saved), dy);
                EXPECT_CLOSE(backward.dx_NI, x_leaf.grad(), tolerance(type));
                linear_backward_weight(ctx, std::move(backward.pending), grads);
            }
            EXPECT_CLOSE(grads.weight_OI, weight.grad() * 2, tolerance(type));
            if (c.bias) { EXPECT_CLOSE(grads.bias_O, bias.grad() * 2, tolerance(type)); }
        }
    }
}

TEST(OpsLinear, WritesIntoAViewOfAFlatBufferAndNowhereElse)
{
    at::manual_seed(12);
    const at::Tensor flat = at::zeros({100}, at::TensorOptions().dtype(at::kDouble)) - 5;
    LinearGrads grads;
    grads.weight_OI = flat.narrow(0, 10, 12).view({3, 4});
    const at::Tensor x = random({6, 4}, at::kDouble);
    const at::Tensor dy = random({6, 3}, at::kDouble);
    LinearPending pending;
    pending.x_NI = x;
    pending.dy_NO = dy;
    linear_backward_weight(context(1, 6), std::move(pending), grads);
    EXPECT_CLOSE(flat.narrow(0, 10, 12).view({3, 4}), at::einsum("no,ni->oi", {dy, x}) - 5, 1e-13);
    EXPECT_TRUE(flat.narrow(0, 0, 10).eq(-5).all().item<bool>());
    EXPECT_TRUE(flat.narrow(0, 22, 78).eq(-5).all().item<bool>());
}

TEST(OpsLinear, BiasGradientHasTheSameBitsForEveryNumberOfThreads)
{
    at::manual_seed(13);
    for (const std::int64_t rows : {1, 64, 65, 1000, 9000})
    {
        const at::Tensor dy = random({rows, 37}, at::kFloat);
        at::Tensor first;
        for (const int threads : {1, 2, 3})
        {
            const ThreadsGuard guard(threads);
            const at::Tensor sum = at::zeros({37});
            add_bias_gradient(dy, sum);
            if (!first.defined()) { first = sum; }
            EXPECT_TRUE(sum.equal(first));
            EXPECT_CLOSE(sum, dy.to(at::kDouble).sum(0), tolerance(at::kFloat));
        }
    }
}

TEST(OpsResidual, AddsOverTheBranch)
{
    at::manual_seed(14);
    for (const at::ScalarType type : both_types)
    {
        const at::Tensor x = random({130, 257}, type);
        const at::Tensor branch = random({130, 257}, type);
        const at::Tensor before = x.clone();
        const at::Tensor expected = x + branch;
        const at::Tensor sum = residual_add(context(1, 130), x, branch);
        EXPECT_EQ(sum.data_ptr(), branch.data_ptr());
        EXPECT_TRUE(sum.equal(expected));
        EXPECT_TRUE(x.equal(before));
    }
}

}  // namespace
}  // namespace plimsoll::nn
