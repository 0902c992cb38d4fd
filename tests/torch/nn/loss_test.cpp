// The fused head and cross entropy against autograd. N rows, D model, V vocabulary.

#include <ATen/ops/gather.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randint.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cmath>
#include <limits>
#include <map>

#include "base/error.hpp"
#include "nn/ops/head_loss.hpp"
#include "torch/nn/op_test_support.hpp"

namespace plimsoll::nn
{
namespace
{

enum class Masks
{
    all,
    some,
    none
};

struct Case
{
    std::int64_t rows, dim, vocab;
    Masks masks;
    double logit_size;
};
const Case cases[] = {
    {1, 1, 1, Masks::all, 1},       {1, 5, 2, Masks::all, 1},       {7, 16, 33, Masks::some, 1},
    {7, 16, 33, Masks::none, 1},    {50, 24, 1025, Masks::some, 1}, {13, 8, 3000, Masks::all, 60},
    {9, 32, 50257, Masks::some, 4},
};

struct Inputs
{
    HeadLossParams params;
    at::Tensor x, labels, mask;
};

Inputs make_inputs(const Case& c, at::ScalarType type)
{
    Inputs in;
    in.params.weight_VD = random_weight(c.vocab, c.dim, type);
    in.params.scale = 1.0 / 37;
    in.x = random({c.rows, c.dim}, type, c.logit_size);
    in.labels = at::randint(0, c.vocab, {c.rows}, at::TensorOptions().dtype(at::kLong));
    in.mask = at::zeros({c.rows}, at::TensorOptions().dtype(at::kByte));
    if (c.masks == Masks::all) { in.mask.fill_(1); }
    if (c.masks == Masks::some) { in.mask = at::randint(0, 2, {c.rows}, at::TensorOptions().dtype(at::kByte)); }
    return in;
}

struct Oracle
{
    double loss_sum;
    at::Tensor x, weight;  ///< leaves after backward of loss_sum * scale
};

Oracle run_oracle(const Inputs& in)
{
    Oracle o;
    o.x = leaf(in.x);
    o.weight = leaf(in.params.weight_VD);
    const at::Tensor logits = at::matmul(o.x, o.weight.transpose(0, 1));
    const at::Tensor picked = at::gather(at::log_softmax(logits, -1), 1, in.labels.view({-1, 1})).view({-1});
    const at::Tensor loss = -(picked * in.mask.to(at::kDouble)).sum();
    (loss * in.params.scale).backward();
    o.loss_sum = loss.item<double>();
    return o;
}

TEST(HeadLoss, MatchesAutogradForEveryChunkSize)
{
    at::manual_seed(51);
    for (const at::ScalarType type : both_types)
    {
        for (const Case& c : cases)
        {
            const Inputs in = make_inputs(c, type);
            const Oracle oracle = run_oracle(in);
            const OpContext ctx = context(1, c.rows);
            for (const std::int64_t chunks : {std::int64_t(1), std::int64_t(2), std::int64_t(3), c.rows, c.rows + 5})
            {
                SCOPED_TRACE(testing::Message()
                             << "V " << c.vocab << " chunks " << chunks << " " << at::toString(type));
                HeadLossParams params = in.params;
                params.chunks = chunks;
                HeadLossGrads grads;
                grads.weight_VD = at::zeros_like(params.weight_VD);
                const at::Tensor x = in.x.clone();
                const HeadLossResult train = head_loss(ctx, params, LossMode::train, x, in.labels, in.mask, grads);
                const double loss_gate = type == at::kDouble ? 1e-13 : 1e-6;
                EXPECT_NEAR(train.loss_sum, oracle.loss_sum, loss_gate * std::max(1.0, std::abs(oracle.loss_sum)));
                EXPECT_EQ(train.count, in.mask.sum().item<std::int64_t>());
                // One entry of V = 1: softmax - onehot is 0 with rounding only.
                if (c.vocab > 1)
                {
                    // Logits of size 60 have an fp32 rounding of 4e-6, which the softmax turns into a relative error;
                    // dx sums V products, for few rows in one chain (BLAS' choice): sqrt(V) 2^-24.
                    const double gate =
                        tolerance(type) * std::max({1.0, c.logit_size / 4, std::sqrt(double(c.vocab) / 1000)});
                    EXPECT_CLOSE(train.dx_ND, oracle.x.grad(), gate);
                    EXPECT_CLOSE(grads.weight_VD, oracle.weight.grad(), gate);
                }
                EXPECT_EQ(train.dx_ND.data_ptr(), x.data_ptr());

                HeadLossGrads none;
                const at::Tensor kept = in.x.clone();
                const HeadLossResult evaluate =
                    head_loss(ctx, params, LossMode::evaluate, kept, in.labels, in.mask, none);
                EXPECT_EQ(evaluate.loss_sum, train.loss_sum);
                EXPECT_EQ(evaluate.count, train.count);
                EXPECT_FALSE(evaluate.dx_ND.defined());
                EXPECT_TRUE(kept.equal(in.x));
            }
        }
    }
}

TEST(HeadLoss, WeightGradientAddsUpAndAFrozenWeightStillGivesDx)
{
    at::manual_seed(52);
    const Inputs in = make_inputs(cases[2], at::kDouble);
    const Oracle oracle = run_oracle(in);
    const OpContext ctx = context(1, cases[2].rows);
    HeadLossGrads grads;
    grads.weight_VD = at::zeros_like(in.params.weight_VD);
    for (int pass = 0; pass < 2; ++pass)
    {
        head_loss(ctx, in.params, LossMode::train, in.x.clone(), in.labels, in.mask, grads);
    }
    EXPECT_CLOSE(grads.weight_VD, oracle.weight.grad() * 2, 1e-12);
    HeadLossGrads frozen;
    EXPECT_CLOSE(head_loss(ctx, in.params, LossMode::train, in.x.clone(), in.labels, in.mask, frozen).dx_ND,
                 oracle.x.grad(), 1e-12);
}

TEST(HeadLoss, NoValidTokenGivesZeroLossAndExactlyZeroGradients)
{
    at::manual_seed(53);
    Inputs in = make_inputs({6, 4, 9, Masks::none, 1}, at::kFloat);
    in.labels.fill_(-100);  // not read where masked
    HeadLossGrads grads;
    grads.weight_VD = at::zeros_like(in.params.weight_VD);
    const HeadLossResult result = head_loss(context(1, 6), in.params, LossMode::train, in.x, in.labels, in.mask, grads);
    EXPECT_EQ(result.loss_sum, 0.0);
    EXPECT_EQ(result.count, 0);
    EXPECT_EQ(result.dx_ND.abs().max().item<double>(), 0.0);
    EXPECT_EQ(grads.weight_VD.abs().max().item<double>(), 0.0);
}

TEST(HeadLoss, NanAndInfReachTheLoss)
{
    at::manual_seed(54);
    for (const at::ScalarType type : both_types)
    {
        for (const double bad : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()})
        {
            const Inputs in = make_inputs({5, 4, 900, Masks::all, 1}, type);
            in.x.select(0, 3).fill_(bad);
            HeadLossGrads none;
            EXPECT_FALSE(std::isfinite(
                head_loss(context(1, 5), in.params, LossMode::evaluate, in.x, in.labels, in.mask, none).loss_sum));
        }
    }
}

TEST(HeadLoss, HugeLogitsNeitherOverflowNorLoseTheLoss)
{
    HeadLossParams params;
    params.weight_VD = at::zeros({3, 1});
    params.weight_VD.select(0, 0).fill_(1e4);
    params.weight_VD.select(0, 2).fill_(-1e4);
    const at::Tensor labels = at::zeros({1}, at::TensorOptions().dtype(at::kLong)) + 2;
    const at::Tensor mask = at::zeros({1}, at::TensorOptions().dtype(at::kByte)) + 1;
    HeadLossGrads grads;
    grads.weight_VD = at::zeros_like(params.weight_VD);
    const HeadLossResult result =
        head_loss(context(1, 1), params, LossMode::train, at::zeros({1, 1}) + 1, labels, mask, grads);
    EXPECT_DOUBLE_EQ(result.loss_sum, 2e4);
    EXPECT_DOUBLE_EQ(result.dx_ND.item<double>(), 2e4);  // 1e4 * 1 + -1e4 * -1
}

TEST(HeadLoss, NamesALabelOutsideTheVocabulary)
{
    Inputs in = make_inputs({3, 4, 9, Masks::all, 1}, at::kFloat);
    in.labels.mutable_data_ptr<std::int64_t>()[1] = 9;
    HeadLossGrads none;
    try
    {
        head_loss(context(1, 3), in.params, LossMode::evaluate, in.x, in.labels, in.mask, none);
        FAIL() << "accepted";
    }
    catch (const FormatError& error)
    {
        EXPECT_EQ(error.text(), "label 9 is outside the vocabulary of 9 (data of another tokenizer?)");
    }
}

TEST(HeadLoss, ChunkRowsFollowTheBudget)
{
    HeadLossParams params;
    params.weight_VD = at::zeros({50257, 1});
    EXPECT_EQ(head_loss_chunk_rows(params, 1), 1);
    EXPECT_EQ(head_loss_chunk_rows(params, 1024), 256);  // 333 rows fit in 64 MiB: 4 chunks of equal size
    params.chunk_bytes = 1;
    EXPECT_EQ(head_loss_chunk_rows(params, 1024), 1);
    params.chunks = 3;
    EXPECT_EQ(head_loss_chunk_rows(params, 1024), 342);
    params.chunks = 4096;
    EXPECT_EQ(head_loss_chunk_rows(params, 1024), 1);
}

/// Peak of what this thread allocates for CPU tensors.
class PeakRecorder : public c10::MemoryReportingInfoBase
{
  public:
    bool memoryProfilingEnabled() const override { return true; }
    void reportMemoryUsage(void*, std::int64_t bytes, std::size_t, std::size_t, c10::Device) override
    {
        current += bytes;
        peak = std::max(peak, current);
    }
    std::int64_t current = 0;
    std::int64_t peak = 0;
};

TEST(HeadLoss, HoldsOneChunkOfLogitsAndNoMore)
{
    at::manual_seed(55);
    Inputs in = make_inputs({64, 16, 5000, Masks::all, 1}, at::kFloat);
    in.params.chunk_bytes = 16 * 5000 * 4;  // 16 rows
    HeadLossGrads grads;
    grads.weight_VD = at::zeros_like(in.params.weight_VD);
    auto recorder = std::make_shared<PeakRecorder>();
    {
        const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, recorder);
        head_loss(context(1, 64), in.params, LossMode::train, in.x, in.labels, in.mask, grads);
    }
    EXPECT_GE(recorder->peak, in.params.chunk_bytes);
    EXPECT_LT(recorder->peak, in.params.chunk_bytes + 4096);
}

}  // namespace
}  // namespace plimsoll::nn
