// AdamW against a plain fp64 reference and against ATen's fused kernel; sums of squares; ranges of a flat unit.

#include <ATen/ops/_fused_adamw.h>

#include <cmath>
#include <limits>

#include "nn/ops/tensor_view.hpp"
#include "nn/optimizer.hpp"
#include "torch/nn/op_test_support.hpp"

namespace plimsoll::nn
{
namespace
{

struct State
{
    at::Tensor param, grad, moment1, moment2;
};

State make_state(std::int64_t count, at::ScalarType type)
{
    State s;
    s.param = random({count}, type);
    s.grad = random({count}, type, 0.1);
    s.moment1 = random({count}, type, 0.01);
    s.moment2 = random({count}, type, 0.01).abs();
    return s;
}

State copy_of(const State& s, at::ScalarType type)
{
    const auto copy = [type](const at::Tensor& t) { return t.to(type).clone(); };
    return {copy(s.param), copy(s.grad), copy(s.moment1), copy(s.moment2)};
}

void update(const AdamWStep& step, const State& s)
{
    adamw_update(step, buffer_view(s.param), buffer_view(s.grad), buffer_view(s.moment1), buffer_view(s.moment2));
}

/// The textbook's order: bias-corrected moments first.
void reference_update(const AdamWStep& step, const State& s)
{
    double* p = s.param.mutable_data_ptr<double>();
    const double* grad = s.grad.const_data_ptr<double>();
    double* m = s.moment1.mutable_data_ptr<double>();
    double* v = s.moment2.mutable_data_ptr<double>();
    for (std::int64_t i = 0; i < s.param.numel(); ++i)
    {
        const double g = grad[i] * step.grad_scale;
        m[i] = step.beta1 * m[i] + (1 - step.beta1) * g;
        v[i] = step.beta2 * v[i] + (1 - step.beta2) * g * g;
        const double m_hat = m[i] / (1 - std::pow(step.beta1, double(step.step)));
        const double v_hat = v[i] / (1 - std::pow(step.beta2, double(step.step)));
        p[i] = p[i] - step.lr * step.weight_decay * p[i] - step.lr * m_hat / (std::sqrt(v_hat) + step.eps);
    }
}

AdamWStep typical_step(std::int64_t t)
{
    AdamWStep step;
    step.lr = 3e-3;
    step.weight_decay = 0.1;
    step.step = t;
    step.grad_scale = 0.37;
    return step;
}

const std::int64_t counts[] = {1, 3, 16, 17, 1000, 16384, 16385, 70001};

/// Per element some ten roundings of 2^-53 (2^-24); the parameter is of size 1, the update of size lr: gates of 4
/// ulp and 16 ulp.
TEST(AdamW, MatchesTheFormulaOverManySteps)
{
    at::manual_seed(61);
    for (const at::ScalarType type : both_types)
    {
        const double ulp = type == at::kDouble ? 1.2e-16 : 6e-8;
        for (const std::int64_t count : counts)
        {
            const State state = make_state(count, type);
            const State reference = copy_of(state, at::kDouble);
            constexpr int steps = 5;
            for (int t = 1; t <= steps; ++t)
            {
                update(typical_step(t), state);
                reference_update(typical_step(t), reference);
            }
            EXPECT_CLOSE(state.param, reference.param, steps * 4 * ulp);
            EXPECT_CLOSE(state.moment1, reference.moment1, steps * 16 * ulp);
            EXPECT_CLOSE(state.moment2, reference.moment2, steps * 16 * ulp);
            EXPECT_TRUE(state.grad.to(at::kDouble).equal(reference.grad));
        }
    }
}

TEST(AdamW, AgreesWithTorch)
{
    at::manual_seed(62);
    for (const at::ScalarType type : both_types)
    {
        const State ours = make_state(5003, type);
        const State torch = copy_of(ours, type);
        AdamWStep step = typical_step(7);
        step.grad_scale = 1.0;
        update(step, ours);
        const at::Tensor t = at::zeros({}) + 7;
        at::_fused_adamw_({torch.param}, {torch.grad}, {torch.moment1}, {torch.moment2}, {}, {t}, step.lr, step.beta1,
                          step.beta2, step.weight_decay, step.eps, false, false);
        const double ulp = type == at::kDouble ? 1.2e-16 : 6e-8;
        EXPECT_CLOSE(ours.param, torch.param, 4 * ulp);
        EXPECT_CLOSE(ours.moment1, torch.moment1, 16 * ulp);
        EXPECT_CLOSE(ours.moment2, torch.moment2, 16 * ulp);
    }
}

TEST(AdamW, BitsDependOnNeitherThreadsNorCuts)
{
    at::manual_seed(63);
    for (const at::ScalarType type : both_types)
    {
        const State start = make_state(50001, type);
        State whole = copy_of(start, type);
        {
            const ThreadsGuard guard(1);
            update(typical_step(3), whole);
        }
        for (const int threads : {2, 3})
        {
            const ThreadsGuard guard(threads);
            const State again = copy_of(start, type);
            update(typical_step(3), again);
            EXPECT_TRUE(again.param.equal(whole.param));
        }
        for (const std::int64_t cut : {1, 7, 16384, 33333})
        {
            const State parts = copy_of(start, type);
            for (const auto& [first, count] : {std::pair{std::int64_t(0), cut}, std::pair{cut, 50001 - cut}})
            {
                const std::int64_t from = first, num = count;
                const auto part = [from, num](const at::Tensor& t) { return buffer_view(t).slice(from, num); };
                adamw_update(typical_step(3), part(parts.param), part(parts.grad), part(parts.moment1),
                             part(parts.moment2));
            }
            EXPECT_TRUE(parts.param.equal(whole.param)) << cut;
            EXPECT_TRUE(parts.moment2.equal(whole.moment2)) << cut;
        }
    }
}

TEST(AdamW, ZeroesTheGradientInTheSamePass)
{
    at::manual_seed(64);
    const State keep = make_state(20000, at::kFloat);
    const State zero = copy_of(keep, at::kFloat);
    AdamWStep step = typical_step(1);
    update(step, keep);
    step.after = AfterUpdate::zero_gradient;
    update(step, zero);
    EXPECT_TRUE(zero.param.equal(keep.param));
    EXPECT_EQ(zero.grad.abs().max().item<double>(), 0.0);
    EXPECT_GT(keep.grad.abs().max().item<double>(), 0.0);
}

TEST(AdamW, GapsOfZerosStayZero)
{
    const at::TensorOptions floats = at::TensorOptions().dtype(at::kFloat);
    const State gap = {at::zeros({64}, floats), at::zeros({64}, floats), at::zeros({64}, floats),
                       at::zeros({64}, floats)};
    for (int t = 1; t <= 3; ++t) { update(typical_step(t), gap); }
    EXPECT_EQ(gap.param.abs().max().item<double>(), 0.0);
    EXPECT_EQ(gap.moment2.abs().max().item<double>(), 0.0);
}

FlatUnit three_groups()
{
    FlatUnit unit;
    unit.num_elements = 100;
    unit.decay_elements = 40;
    unit.frozen_begin = 70;
    return unit;
}

TEST(OptimizerRanges, CutsAUnitByGroupAndShard)
{
    const FlatUnit unit = three_groups();
    struct Row
    {
        std::int64_t begin, end;
        std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
    };
    const std::vector<Row> table = {
        {0, 0, {}},           {0, 100, {{0, 40}, {40, 70}}},  {0, 40, {{0, 40}}},
        {10, 20, {{10, 20}}}, {39, 41, {{39, 40}, {40, 41}}}, {50, 100, {{50, 70}}},
        {70, 100, {}},
    };
    for (const Row& row : table)
    {
        const std::vector<OptimizerRange> ranges = optimizer_ranges(unit, row.begin, row.end);
        ASSERT_EQ(ranges.size(), row.ranges.size()) << row.begin;
        for (std::size_t i = 0; i < ranges.size(); ++i)
        {
            EXPECT_EQ(ranges[i].begin, row.ranges[i].first);
            EXPECT_EQ(ranges[i].end, row.ranges[i].second);
            EXPECT_EQ(ranges[i].group, ranges[i].begin < 40 ? DecayGroup::decay : DecayGroup::no_decay);
        }
    }
}

TEST(OptimizerRanges, UpdatesAShardWithDecayOnlyWhereItBelongs)
{
    at::manual_seed(65);
    const FlatUnit unit = three_groups();
    const State whole = make_state(100, at::kDouble);
    const State before = copy_of(whole, at::kDouble);
    constexpr std::int64_t begin = 30, end = 90;
    const auto shard = [](const at::Tensor& t) { return t.narrow(0, begin, end - begin).clone(); };
    const State moments = {at::Tensor(), at::Tensor(), shard(whole.moment1), shard(whole.moment2)};
    const auto part = [](const at::Tensor& t) { return buffer_view(t.narrow(0, begin, end - begin)); };
    adamw_update_unit(typical_step(2), unit, begin, end, part(whole.param), part(whole.grad), buffer_view(moments.moment1), buffer_view(moments.moment2));

    const State decayed = copy_of(before, at::kDouble);
    reference_update(typical_step(2), decayed);
    AdamWStep no_decay = typical_step(2);
    no_decay.weight_decay = 0;
    const State plain = copy_of(before, at::kDouble);
    reference_update(no_decay, plain);
    const auto range = [](const at::Tensor& t, std::int64_t from, std::int64_t to)
    { return t.narrow(0, from, to - from); };
    EXPECT_TRUE(range(whole.param, 0, 30).equal(range(before.param, 0, 30)));
    EXPECT_CLOSE(range(whole.param, 30, 40), range(decayed.param, 30, 40), 1e-15);
    EXPECT_CLOSE(range(whole.param, 40, 70), range(plain.param, 40, 70), 1e-15);
    EXPECT_TRUE(range(whole.param, 70, 100).equal(range(before.param, 70, 100)));
    EXPECT_TRUE(range(moments.moment1, 40, 60).equal(shard(before.moment1).narrow(0, 40, 20)));
    EXPECT_CLOSE(range(moments.moment1, 0, 40), range(plain.moment1, 30, 70), 1e-14);
}

TEST(SumOfSquares, IsExactInF64AndTheSameForEveryNumberOfThreads)
{
    at::manual_seed(66);
    for (const at::ScalarType type : both_types)
    {
        for (const std::int64_t count : {std::int64_t(0), std::int64_t(1), std::int64_t(16385), std::int64_t(200003)})
        {
            const at::Tensor data = random({count}, type);
            const double expected = data.to(at::kDouble).square().sum().item<double>();
            std::vector<double> sums;
            for (const int threads : {1, 2, 3})
            {
                const ThreadsGuard guard(threads);
                sums.push_back(sum_of_squares(buffer_view(data)));
            }
            EXPECT_EQ(sums[0], sums[1]);
            EXPECT_EQ(sums[0], sums[2]);
            EXPECT_NEAR(sums[0], expected, 1e-13 * expected);
        }
    }
}

TEST(SumOfSquares, PropagatesNanAndInfAndDoesNotOverflowInF32)
{
    const at::Tensor data = at::zeros({40000}, at::TensorOptions().dtype(at::kFloat));
    float* values = data.mutable_data_ptr<float>();
    values[39999] = 1e30f;
    EXPECT_NEAR(sum_of_squares(buffer_view(data)) / 1e60, 1.0, 1e-6);
    values[5] = std::numeric_limits<float>::infinity();
    EXPECT_TRUE(std::isinf(sum_of_squares(buffer_view(data))));
    values[6] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_TRUE(std::isnan(sum_of_squares(buffer_view(data))));
}

TEST(ClipFactor, FollowsTorch)
{
    EXPECT_EQ(clip_factor(5.0, 0.0), 1.0);
    EXPECT_EQ(clip_factor(0.0, 1.0), 1.0);
    EXPECT_EQ(clip_factor(0.5, 1.0), 1.0);
    EXPECT_DOUBLE_EQ(clip_factor(4.0, 1.0), 1.0 / (4.0 + 1e-6));
}

}  // namespace
}  // namespace plimsoll::nn
