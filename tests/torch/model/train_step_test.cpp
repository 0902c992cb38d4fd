#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.hpp"
#include "torch/model/small_run.hpp"

using namespace plimsoll;
using namespace plimsoll::nn;
using plimsoll::test::small_gpt2;
using plimsoll::test::small_llama;
using plimsoll::test::SmallRun;

namespace
{

void set_dropout(SmallRun& run, double hidden, double embedding)
{
    run.settings.dropout.hidden = hidden;
    run.settings.dropout.embedding = embedding;
    run.settings.seed = 12;
    run.make_step();
}

}  // namespace

TEST(TrainStep, AccumulationDoesNotChangeTheStep)
{
    // Decision 22 in fp64: loss and norm 1e-11; ten steps, so that updates and moments take part. Masks are uneven, which
    // shows any averaging by micro-batch.
    SmallRun whole(small_gpt2(), at::kDouble, 6), thirds(small_gpt2(), at::kDouble, 2), single(small_gpt2(), at::kDouble, 1);
    for (int step = 1; step <= 10; ++step)
    {
        const StepResult expected = whole.run(step);
        for (SmallRun* other : {&thirds, &single})
        {
            const StepResult got = other->run(step);
            EXPECT_EQ(got.sums.count, expected.sums.count);
            EXPECT_NEAR(got.loss(), expected.loss(), 1e-11 * expected.loss());
            EXPECT_NEAR(got.grad_norm, expected.grad_norm, 1e-11 * expected.grad_norm);
        }
    }
}

TEST(TrainStep, ReportsTheTrainingLossAndThePlainCrossEntropyOfTheSameTokens)
{
    SmallRun plain(small_gpt2(), at::kDouble, 2), with_terms(small_gpt2(), at::kDouble, 2);
    with_terms.model = std::make_unique<Model>(with_terms.spec, *with_terms.params, 16, 0, 0.2, 0.01);
    with_terms.make_step();
    const StepResult expected = plain.run(1), got = with_terms.run(1);
    EXPECT_EQ(expected.loss(), expected.cross_entropy());
    EXPECT_EQ(got.sums.count, expected.sums.count);
    EXPECT_NEAR(got.cross_entropy(), expected.loss(), 1e-13 * expected.loss());
    // At the start all logits are small: the mean over the vocabulary is close to log V too, and lse close to log V.
    EXPECT_NEAR(got.loss(), expected.loss() + 0.01 * std::log(37.0) * std::log(37.0), 0.05);
    EXPECT_GT(got.loss(), expected.loss() + 0.05);
}

TEST(TrainStep, DropoutDoesNotDependOnAccumulation)
{
    // The gate of AccumulationDoesNotChangeTheStep.
    SmallRun whole(small_gpt2(), at::kDouble, 6), thirds(small_gpt2(), at::kDouble, 2), single(small_gpt2(), at::kDouble, 1);
    SmallRun plain(small_gpt2(), at::kDouble, 6);
    for (SmallRun* run : {&whole, &thirds, &single}) { set_dropout(*run, 0.1, 0.2); }
    for (int step = 1; step <= 10; ++step)
    {
        const StepResult expected = whole.run(step);
        EXPECT_NE(expected.loss(), plain.run(step).loss());
        for (SmallRun* other : {&thirds, &single})
        {
            const StepResult got = other->run(step);
            EXPECT_NEAR(got.loss(), expected.loss(), 1e-11 * expected.loss());
            EXPECT_NEAR(got.grad_norm, expected.grad_norm, 1e-11 * expected.grad_norm);
        }
    }
}

TEST(TrainStep, DropoutRepeatsToTheBitWhereverTheRunBegan)
{
    SmallRun through(small_llama(), at::kFloat, 2), resumed(small_llama(), at::kFloat, 2);
    set_dropout(through, 0.1, 0.1);
    for (int step = 1; step <= 3; ++step) { through.run(step); }
    for (std::int64_t u = 0; u < through.params->num_units(); ++u)
    {
        for (const FlatState state : {FlatState::params, FlatState::exp_avg, FlatState::exp_avg_sq})
        {
            at::Tensor(resumed.params->buffer(state, u)).copy_(through.params->buffer(state, u));
        }
    }
    set_dropout(resumed, 0.1, 0.1);
    for (int step = 4; step <= 6; ++step) { EXPECT_EQ(resumed.run(step).loss(), through.run(step).loss()); }
    EXPECT_TRUE(at::equal(resumed.weights(), through.weights()));
}

TEST(TrainStep, Bf16FollowsFp32)
{
    SmallRun full(small_gpt2(), at::kFloat, 3), rounded(small_gpt2(), at::kBFloat16, 3);
    for (int step = 1; step <= 50; ++step)
    {
        const StepResult expected = full.run(step), got = rounded.run(step);
        EXPECT_EQ(got.sums.count, expected.sums.count);
        // Activations carry 2^-8, and a learning rate of 1e-2 multiplies the difference: after fifty steps it was 2e-3 nats, of 3.6 at
        // the start, and 3 % of the norm within the first ten.
        EXPECT_NEAR(got.loss(), expected.loss(), step == 1 ? 2e-3 * expected.loss() : 3e-2 * expected.loss() + 5e-3) << step;
        if (step <= 10) { EXPECT_NEAR(got.grad_norm, expected.grad_norm, (step == 1 ? 1e-2 : 8e-2) * expected.grad_norm) << step; }
    }
}

TEST(TrainStep, Bf16AddsGradientsOfMicroBatchesInFp32)
{
    // DS#6550, DS PR#7981: only the first micro-batch's gradient was kept. Each micro-batch is computed the same way whatever the
    // masks of the others are, so gradients of two halves add up to those of all, to the rounding of fp32 sums; one rounding to bf16
    // after each micro-batch would leave an error of 2^-9 of the whole.
    SmallRun run(small_gpt2(), at::kBFloat16, 1);
    const auto gradients = [&](const std::function<bool(int)>& counts)
    {
        int batch_number = 0;
        run.edit = [&](TokenBatch& batch)
        {
            if (!counts(batch_number++)) { std::fill(batch.mask.begin(), batch.mask.end(), std::uint8_t{0}); }
        };
        StepTimes times;
        run.step->accumulate_gradients(1, 0, times);
        std::vector<at::Tensor> parts;
        for (std::int64_t u = 0; u < run.params->num_units(); ++u) { parts.push_back(run.params->owned(FlatState::grads, u).to(at::kDouble)); }
        run.params->zero_grads();
        return at::cat(parts);
    };
    const at::Tensor all = gradients([](int) { return true; });
    const at::Tensor first = gradients([](int number) { return number == 0; });
    const at::Tensor rest = gradients([](int number) { return number > 0; });
    EXPECT_GT(first.norm().item<double>(), 0.1 * all.norm().item<double>());
    EXPECT_GT(rest.norm().item<double>(), 0.1 * all.norm().item<double>());
    EXPECT_LE((all - first - rest).norm().item<double>(), 1e-6 * all.norm().item<double>());
}

TEST(TrainStep, Bf16AccumulationOfSixAgreesWithOne)
{
    // DS PR#7985: the last micro-batch was left out, a bias of 1/6 here.
    SmallRun whole(small_gpt2(), at::kBFloat16, 6), single(small_gpt2(), at::kBFloat16, 1);
    for (int step = 1; step <= 5; ++step)
    {
        const StepResult expected = whole.run(step), got = single.run(step);
        EXPECT_NEAR(got.loss(), expected.loss(), 2e-3 * expected.loss()) << step;
        EXPECT_NEAR(got.grad_norm, expected.grad_norm, 1e-2 * expected.grad_norm) << step;
    }
}

TEST(TrainStep, ManyUpdatesBelowAnUlpMoveBf16Weights)
{
    SmallRun run(small_llama(), at::kBFloat16, 6);
    run.settings.schedule.lr = 1e-4;
    run.make_step();
    const char* name = "final_norm.weight";  // ones: an ulp is 2^-7 above and 2^-8 below
    const at::Tensor before = run.params->view(FlatState::params, name).clone();
    run.run(1);
    EXPECT_TRUE(at::equal(run.params->view(FlatState::params, name), before));
    const at::Tensor moved = (run.params->view(FlatState::master, name) - 1).abs();
    EXPECT_GT(moved.max().item<double>(), 0.5e-4);
    EXPECT_LT(moved.max().item<double>(), 2e-4);
    for (int step = 2; step <= 80; ++step) { run.run(step); }
    EXPECT_FALSE(at::equal(run.params->view(FlatState::params, name), before));
    run.params->check_master();
}

TEST(TrainStep, Bf16RepeatsToTheBitAndContinuesFromItsMaster)
{
    SmallRun through(small_llama(), at::kBFloat16, 2), resumed(small_llama(), at::kBFloat16, 2);
    for (int step = 1; step <= 3; ++step) { through.run(step); }
    for (std::int64_t u = 0; u < through.params->num_units(); ++u)
    {
        for (const FlatState state : {FlatState::master, FlatState::exp_avg, FlatState::exp_avg_sq})
        {
            at::Tensor(resumed.params->buffer(state, u)).copy_(through.params->buffer(state, u));
        }
    }
    resumed.params->round_master();
    for (int step = 4; step <= 6; ++step) { EXPECT_EQ(resumed.run(step).loss(), through.run(step).loss()); }
    EXPECT_TRUE(at::equal(resumed.weights(), through.weights()));
}

TEST(TrainStep, LearnsTheRule)
{
    SmallRun run(small_llama(), at::kFloat, 3);
    const double first = run.run(1).loss();
    EXPECT_NEAR(first, std::log(37.0), 0.2);
    double last = first;
    for (int step = 2; step <= 50; ++step) { last = run.run(step).loss(); }
    EXPECT_LT(last, first - 1.5);
}

TEST(TrainStep, RepeatsToTheBit)
{
    SmallRun a(small_llama(), at::kFloat, 2), b(small_llama(), at::kFloat, 2);
    for (int step = 1; step <= 5; ++step) { EXPECT_EQ(a.run(step).loss(), b.run(step).loss()); }
    EXPECT_TRUE(at::equal(a.weights(), b.weights()));
}

TEST(TrainStep, RepeatsToTheBitOnSeveralThreads)
{
    const int before = at::get_num_threads();
    at::set_num_threads(3);
    // Wide enough that products, attention and own kernels use all of them.
    const ModelSpec wide = parse_model_spec(R"({"model_type":"gpt2","vocab_size":1031,"n_embd":256,"n_layer":2,"n_head":4,
        "n_positions":64,"layer_norm_epsilon":1e-5,"activation_function":"gelu_new"})", "test");
    SmallRun a(wide, at::kFloat, 6), b(wide, at::kFloat, 6);
    for (SmallRun* run : {&a, &b}) { set_dropout(*run, 0.1, 0.1); }
    for (int step = 1; step <= 3; ++step) { EXPECT_EQ(a.run(step).loss(), b.run(step).loss()); }
    EXPECT_TRUE(at::equal(a.weights(), b.weights()));
    at::set_num_threads(before);
}

TEST(TrainStep, ShardedPathOfOneRankIsTheSameToTheBit)
{
    SmallRun plain(small_llama(), at::kFloat, 2, 0), sharded(small_llama(), at::kFloat, 2, 1);
    for (int step = 1; step <= 3; ++step) { EXPECT_EQ(plain.run(step).grad_norm, sharded.run(step).grad_norm); }
    EXPECT_TRUE(at::equal(plain.weights(), sharded.weights()));
}

TEST(TrainStep, NormIsOfTheAveragedGradientBeforeClipping)
{
    SmallRun run(small_llama(), at::kDouble, 6);
    StepTimes times;
    const LossSums sums = run.step->accumulate_gradients(1, 0, times);
    double squares = 0;
    for (std::int64_t u = 0; u < run.params->num_units(); ++u)
    {
        squares += run.params->owned(FlatState::grads, u).pow(2).sum().item<double>();
    }
    run.params->zero_grads();
    const double nominal = 6.0 * 16.0;
    const double expected = std::sqrt(squares) * nominal / static_cast<double>(sums.count);
    EXPECT_NEAR(run.run(1).grad_norm, expected, 1e-12 * expected);
}

TEST(TrainStep, ClippingBoundsTheUpdateOfTheFirstMoment)
{
    SmallRun run(small_llama(), at::kDouble, 6);
    run.settings.clip = 1e-3;
    run.make_step();
    const StepResult result = run.run(1);
    ASSERT_GT(result.grad_norm, 1e-3);
    double squares = 0;
    for (std::int64_t u = 0; u < run.params->num_units(); ++u)
    {
        squares += run.params->buffer(FlatState::exp_avg, u).pow(2).sum().item<double>();
    }
    // After one update exp_avg = (1 - beta1) g, and the clipped g has the norm clip * norm / (norm + 1e-6).
    EXPECT_NEAR(std::sqrt(squares), 0.1 * 1e-3 * result.grad_norm / (result.grad_norm + 1e-6), 1e-12);
}

TEST(TrainStep, ABatchWithoutValidTokensChangesNothing)
{
    SmallRun run(small_llama(), at::kFloat, 2);
    run.edit = [](TokenBatch& batch)
    {
        std::fill(batch.mask.begin(), batch.mask.end(), std::uint8_t{0});
        batch.num_valid = 0;
    };
    const at::Tensor before = run.weights();
    const StepResult result = run.run(1);
    EXPECT_FALSE(result.updated);
    EXPECT_EQ(result.sums.count, 0);
    EXPECT_TRUE(at::equal(before, run.weights()));
}

TEST(TrainStep, OneMicroBatchWithoutValidTokensIsNoSpecialCase)
{
    SmallRun accumulated(small_llama(), at::kDouble, 1), whole(small_llama(), at::kDouble, 6);
    // The sixth sample of the step has no valid token: one whole micro-batch here, the last row there.
    whole.edit = [](TokenBatch& batch)
    { std::fill(batch.mask.begin() + 5 * batch.seq_len, batch.mask.end(), std::uint8_t{0}); };
    accumulated.edit = [count = std::int64_t{0}](TokenBatch& batch) mutable
    {
        if (count++ % 6 == 5) { std::fill(batch.mask.begin(), batch.mask.end(), std::uint8_t{0}); }
    };
    const StepResult a = accumulated.run(1), b = whole.run(1);
    EXPECT_EQ(a.sums.count, b.sums.count);
    EXPECT_NEAR(a.loss(), b.loss(), 1e-11 * b.loss());
    EXPECT_NEAR(a.grad_norm, b.grad_norm, 1e-11 * b.grad_norm);
}

TEST(TrainStep, RefusesALossThatIsNotFiniteAndLeavesTheWeights)
{
    SmallRun run(small_llama(), at::kFloat, 6);
    run.params->view(FlatState::params, "final_norm.weight")[0].fill_(std::numeric_limits<float>::quiet_NaN());
    const at::Tensor before = run.weights();
    try
    {
        run.run(7);
        FAIL() << "a loss of nan passed";
    }
    catch (const NumericError& error)
    {
        EXPECT_EQ(error.exit_code(), ExitCode::fatal);
        EXPECT_NE(std::string(error.what()).find("loss is nan at step 7 (lr 0.01)"), std::string::npos) << error.what();
    }
    EXPECT_TRUE(at::allclose(before, run.weights(), 0, 0, true));
}

TEST(TrainStep, CarriesTheStopRequest)
{
    SmallRun run(small_llama(), at::kFloat, 6);
    EXPECT_FALSE(run.step->run(1, 0, 1, {[] { return false; }, 0.0}).stop_requested);
    EXPECT_TRUE(run.step->run(2, 6, 2, {[] { return true; }, 0.0}).stop_requested);
}
