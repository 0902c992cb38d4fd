// The fused head and cross entropy against autograd. N rows, D model, V vocabulary.

#include <ATen/ops/cat.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randint.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cmath>
#include <limits>
#include <map>

#include "base/error.hpp"
#include "comm/thread_communicator.hpp"
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
    double loss_sum, cross_entropy_sum;
    at::Tensor x, weight;  ///< leaves after backward of loss_sum * scale
};

Oracle run_oracle(const Inputs& in)
{
    Oracle o;
    o.x = leaf(in.x);
    o.weight = leaf(in.params.weight_VD);
    const at::Tensor logits = at::matmul(o.x, o.weight.transpose(0, 1));
    const at::Tensor picked = at::gather(at::log_softmax(logits, -1), 1, in.labels.view({-1, 1})).view({-1});
    const at::Tensor mask = in.mask.to(at::kDouble);
    const at::Tensor cross_entropy = -(picked * mask).sum();
    // Label smoothing as its definition says it: the cross entropy against (1 - e) onehot + e / V, V of the whole model.
    const double e = in.params.label_smoothing;
    const at::Tensor uniform = -(at::log_softmax(logits, -1).sum(-1) * mask).sum() / double(in.params.weight_VD.size(0));
    const at::Tensor z = (at::logsumexp(logits, -1).pow(2) * mask).sum();
    const at::Tensor loss = cross_entropy * (1 - e) + uniform * e + z * in.params.z_loss;
    (loss * in.params.scale).backward();
    o.loss_sum = loss.item<double>();
    o.cross_entropy_sum = cross_entropy.item<double>();
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
                    EXPECT_CLOSE(train.dx_MD, oracle.x.grad(), gate);
                    EXPECT_CLOSE(grads.weight_VD, oracle.weight.grad(), gate);
                }
                EXPECT_EQ(train.dx_MD.data_ptr(), x.data_ptr());

                HeadLossGrads none;
                const at::Tensor kept = in.x.clone();
                const HeadLossResult evaluate =
                    head_loss(ctx, params, LossMode::evaluate, kept, in.labels, in.mask, none);
                EXPECT_EQ(evaluate.loss_sum, train.loss_sum);
                EXPECT_EQ(evaluate.count, train.count);
                EXPECT_FALSE(evaluate.dx_MD.defined());
                EXPECT_TRUE(kept.equal(in.x));
            }
        }
    }
}

struct Terms
{
    double label_smoothing, z_loss;
};
constexpr Terms terms[] = {{0.1, 0}, {0, 1e-2}, {0.1, 1e-4}, {0.9, 0.5}};

/// head_loss() over `tp` ranks, each with its rows of the vocabulary; the results of rank 0, the weight's gradient joined.
HeadLossResult run_over_tp(const Inputs& in, const HeadLossParams& params, LossMode mode, std::int64_t tp, at::Tensor& dweight)
{
    const std::int64_t vocab = params.weight_VD.size(0), columns = (vocab + tp - 1) / tp;
    std::vector<at::Tensor> parts(static_cast<std::size_t>(tp));
    std::vector<HeadLossResult> results(static_cast<std::size_t>(tp));
    run_ranks(tp,
              [&](Communicator& group)
              {
                  at::set_num_threads(1);
                  OpContext ctx = context(1, in.x.size(0));
                  ctx.tp = &group;
                  HeadLossParams mine = params;
                  mine.slice.vocab = vocab;
                  mine.slice.first = std::min(vocab, group.rank() * columns);
                  mine.slice.columns = columns;
                  mine.weight_VD = params.weight_VD.narrow(0, mine.slice.first,
                                                           std::min(columns, vocab - mine.slice.first)).clone();
                  HeadLossGrads grads;
                  grads.weight_VD = at::zeros_like(mine.weight_VD);
                  const auto at = static_cast<std::size_t>(group.rank());
                  results[at] = head_loss(ctx, mine, mode, in.x.clone(), in.labels, in.mask, grads);
                  parts[at] = grads.weight_VD;
              });
    dweight = at::cat(parts);
    for (const HeadLossResult& result : results)
    {
        EXPECT_EQ(result.loss_sum, results.front().loss_sum);
        EXPECT_EQ(result.cross_entropy_sum, results.front().cross_entropy_sum);
        if (mode == LossMode::train) { EXPECT_TRUE(result.dx_MD.equal(results.front().dx_MD)); }
    }
    return results.front();
}

TEST(HeadLoss, LabelSmoothingAndZLossMatchAutogradOverTheCutVocabulary)
{
    at::manual_seed(56);
    // 5 columns over tp 4 are 2, 2, 1 and none; 33 and 1025 divide by none of them.
    const Case odd[] = {{6, 8, 5, Masks::all, 1}, {7, 16, 33, Masks::some, 1}, {20, 24, 1025, Masks::some, 4}};
    for (const at::ScalarType type : both_types)
    {
        for (const Case& c : odd)
        {
            for (const Terms& t : terms)
            {
                Inputs in = make_inputs(c, type);
                in.params.label_smoothing = t.label_smoothing;
                in.params.z_loss = t.z_loss;
                const Oracle oracle = run_oracle(in);
                for (const std::int64_t tp : {1, 2, 3, 4})
                {
                    for (const std::int64_t chunks : {1, 3})
                    {
                        SCOPED_TRACE(testing::Message() << "V " << c.vocab << " tp " << tp << " chunks " << chunks << " e "
                                                        << t.label_smoothing << " z " << t.z_loss << " " << at::toString(type));
                        HeadLossParams params = in.params;
                        params.chunks = chunks;
                        at::Tensor dweight;
                        const HeadLossResult train = run_over_tp(in, params, LossMode::train, tp, dweight);
                        const bool fp64 = type == at::kDouble;
                        const double loss_gate = (fp64 ? 1e-13 : 1e-6) * std::max(1.0, std::abs(oracle.loss_sum));
                        EXPECT_NEAR(train.loss_sum, oracle.loss_sum, loss_gate);
                        EXPECT_NEAR(train.cross_entropy_sum, oracle.cross_entropy_sum, loss_gate);
                        EXPECT_CLOSE(train.dx_MD, oracle.x.grad(), tolerance(type));
                        EXPECT_CLOSE(dweight, oracle.weight.grad(), tolerance(type));

                        const HeadLossResult evaluate = run_over_tp(in, params, LossMode::evaluate, tp, dweight);
                        EXPECT_EQ(evaluate.loss_sum, train.cross_entropy_sum);
                        EXPECT_EQ(evaluate.cross_entropy_sum, train.cross_entropy_sum);
                    }
                }
            }
        }
    }
}

TEST(HeadLoss, WithoutTermsTheTrainingLossIsTheCrossEntropyToTheBit)
{
    at::manual_seed(57);
    const Inputs in = make_inputs(cases[4], at::kFloat);
    HeadLossGrads grads;
    const HeadLossResult train =
        head_loss(context(1, cases[4].rows), in.params, LossMode::train, in.x.clone(), in.labels, in.mask, grads);
    EXPECT_EQ(train.loss_sum, train.cross_entropy_sum);
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
    EXPECT_CLOSE(head_loss(ctx, in.params, LossMode::train, in.x.clone(), in.labels, in.mask, frozen).dx_MD,
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
    EXPECT_EQ(result.dx_MD.abs().max().item<double>(), 0.0);
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
    EXPECT_DOUBLE_EQ(result.dx_MD.item<double>(), 2e4);  // 1e4 * 1 + -1e4 * -1
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
