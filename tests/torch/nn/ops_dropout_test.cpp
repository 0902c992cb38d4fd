// Dropout of the residual stream: its mask, its statistics, its independence of cuts. B batch, S sequence, D model, N = B*S.

#include <ATen/ops/cat.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>

#include <string>

#include "nn/ops/dropout.hpp"
#include "torch/nn/op_test_support.hpp"

namespace plimsoll::nn
{
namespace
{

OpContext training_context(std::int64_t batch, std::int64_t seq_len, std::int64_t first_sample)
{
    OpContext ctx = context(batch, seq_len);
    ctx.seed = 7;
    ctx.step = 1000;
    ctx.first_sample = first_sample;
    return ctx;
}

at::Tensor factors(const OpContext& ctx, const Dropout& dropout, std::int64_t dim, at::ScalarType type = at::kDouble)
{
    const at::Tensor x_ND = at::ones({ctx.batch * ctx.seq_len, dim}, at::TensorOptions().dtype(type));
    dropout_in_place(ctx, dropout, x_ND);
    return x_ND;
}

TEST(Dropout, DrawsTheGoldenMask)
{
    // Second row of "dropout" in tests/unit/base/golden/data_order.json; the sample is the second of its batch.
    const std::string golden =
        "000001001101111001110011100110010001110000101111000001010110011010110010101110011000001010010110";
    const at::Tensor seen = factors(training_context(3, 12, 123456788), {0.5, DropoutSite::attention, 11}, 8);
    std::string kept;
    for (std::int64_t i = 0; i < 96; ++i) { kept += seen.const_data_ptr<double>()[96 + i] > 0 ? '1' : '0'; }
    EXPECT_EQ(kept, golden);
}

TEST(Dropout, KeepsTheMeanAndDropsEachElementAtItsRate)
{
    for (const double rate : {0.05, 0.1, 0.5, 0.9})
    {
        // 512 samples of 8 x 16 elements: each element of the sample is seen 512 times.
        const at::Tensor seen = factors(training_context(512, 8, 0), {rate, DropoutSite::mlp, 2}, 16).view({512, 128});
        const double deviation = std::sqrt(rate / (1 - rate));  // of one factor, whose mean is 1
        EXPECT_NEAR(seen.mean().item<double>(), 1.0, 5 * deviation / std::sqrt(512.0 * 128));
        EXPECT_LT((seen.mean(0) - 1).abs().max().item<double>(), 5 * deviation / std::sqrt(512.0));
        EXPECT_LT((seen.mean(1) - 1).abs().max().item<double>(), 5 * deviation / std::sqrt(128.0));
        const at::Tensor kept = seen.masked_select(seen > 0);
        EXPECT_LT((kept - 1 / (1 - rate)).abs().max().item<double>(), 1e-15 / (1 - rate));
    }
}

TEST(Dropout, EveryKeyChangesTheMask)
{
    const Dropout dropout = {0.5, DropoutSite::attention, 3};
    const OpContext ctx = training_context(2, 8, 10);
    const at::Tensor expected = factors(ctx, dropout, 16);
    EXPECT_TRUE(expected.equal(factors(ctx, dropout, 16)));
    EXPECT_FALSE(expected.narrow(0, 0, 8).equal(expected.narrow(0, 8, 8))) << "two samples have one mask";
    std::vector<OpContext> contexts(3, ctx);
    contexts[0].seed = 8;
    contexts[1].step = 1001;
    contexts[2].first_sample = 12;
    for (const OpContext& other : contexts) { EXPECT_FALSE(expected.equal(factors(other, dropout, 16))); }
    EXPECT_FALSE(expected.equal(factors(ctx, {0.5, DropoutSite::mlp, 3}, 16)));
    EXPECT_FALSE(expected.equal(factors(ctx, {0.5, DropoutSite::attention, 4}, 16)));
}

TEST(Dropout, NeitherMicroBatchNorThreadsChangeABit)
{
    at::manual_seed(61);
    const Dropout dropout = {0.1, DropoutSite::mlp, 1};
    // 33 x 129 elements a sample: nothing falls on a block of the generator or of the threads.
    for (const at::ScalarType type : both_types)
    {
        const at::Tensor x = random({6 * 33, 129}, type), branch = random({6 * 33, 129}, type);
        const at::Tensor whole = dropout_add(training_context(6, 33, 5), dropout, x, branch.clone());
        for (const std::int64_t batch : {1, 2, 3})
        {
            std::vector<at::Tensor> parts;
            for (std::int64_t first = 0; first < 6; first += batch)
            {
                const at::Tensor part = branch.narrow(0, first * 33, batch * 33).clone();
                parts.push_back(dropout_add(training_context(batch, 33, 5 + first), dropout,
                                            x.narrow(0, first * 33, batch * 33).contiguous(), part));
            }
            EXPECT_TRUE(whole.equal(at::cat(parts)));
        }
        const ThreadsGuard threads(3);
        EXPECT_TRUE(whole.equal(dropout_add(training_context(6, 33, 5), dropout, x, branch.clone())));
    }
}

TEST(Dropout, BackwardHasTheMaskOfForwardAndLeavesDy)
{
    at::manual_seed(62);
    const OpContext ctx = training_context(2, 9, 3);
    const Dropout dropout = {0.3, DropoutSite::attention, 0};
    const at::Tensor mask = factors(ctx, dropout, 20);
    for (const at::ScalarType type : both_types)
    {
        const at::Tensor x = random({18, 20}, type), branch = random({18, 20}, type), dy = random({18, 20}, type);
        const at::Tensor kept = dy.clone();
        EXPECT_CLOSE(dropout_backward(ctx, dropout, dy), dy.to(at::kDouble) * mask, tolerance(type));
        EXPECT_TRUE(dy.equal(kept));
        const at::Tensor expected = x.to(at::kDouble) + branch.to(at::kDouble) * mask;
        EXPECT_CLOSE(dropout_add(ctx, dropout, x, branch), expected, tolerance(type));
        dropout_in_place(ctx, dropout, dy);
        EXPECT_CLOSE(dy, kept.to(at::kDouble) * mask, tolerance(type));
    }
}

TEST(Dropout, RateZeroChangesNothing)
{
    at::manual_seed(63);
    const at::Tensor x = random({8, 5}, at::kFloat);
    const at::Tensor before = x.clone();
    dropout_in_place(training_context(2, 4, 0), {0.0, DropoutSite::embedding, 0}, x);
    EXPECT_TRUE(x.equal(before));
}

}  // namespace
}  // namespace plimsoll::nn
