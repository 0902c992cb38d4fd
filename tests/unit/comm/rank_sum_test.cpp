#include "comm/rank_sum.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/bf16.hpp"
#include "base/error.hpp"

using namespace plimsoll;

TEST(RankSum, AddsFromTheLeftInTheTypeItself)
{
    // 1e8 + 1 - 1e8 is 0 in fp32 from the left, 1 in fp64 and in any exact sum.
    const std::vector<std::vector<float>> inputs{{1e8F}, {1}, {-1e8F}};
    const std::vector<const void*> pointers{inputs[0].data(), inputs[1].data(), inputs[2].data()};
    float sum = 5;
    reduce_ranks(Dtype::f32, ReduceOp::sum, &sum, pointers.data(), 3, 1);
    EXPECT_EQ(sum, 0);
    const std::vector<std::vector<double>> wide{{1e8}, {1}, {-1e8}};
    const std::vector<const void*> wide_pointers{wide[0].data(), wide[1].data(), wide[2].data()};
    double wide_sum = 5;
    reduce_ranks(Dtype::f64, ReduceOp::sum, &wide_sum, wide_pointers.data(), 3, 1);
    EXPECT_EQ(wide_sum, 1);
}

TEST(RankSum, MayWriteOverAnyInput)
{
    for (const std::size_t num : {1, 2, 3, 5})
    {
        for (std::size_t target = 0; target < num; ++target)
        {
            std::vector<std::vector<float>> inputs;
            std::vector<const void*> pointers;
            for (std::size_t i = 0; i < num; ++i) { inputs.emplace_back(5000, static_cast<float>(i + 1)); }
            for (const auto& input : inputs) { pointers.push_back(input.data()); }
            reduce_ranks(Dtype::f32, ReduceOp::sum, inputs[target].data(), pointers.data(), static_cast<std::int64_t>(num), 5000);
            const auto wanted = static_cast<float>(num * (num + 1) / 2);
            EXPECT_EQ(inputs[target], std::vector<float>(5000, wanted));
        }
    }
}

TEST(RankSum, ByStepsIsTheSameAsAtOnce)
{
    std::vector<std::vector<float>> inputs(4, std::vector<float>(1000));
    for (std::size_t i = 0; i < 4000; ++i) { inputs[i % 4][i / 4] = std::sin(static_cast<float>(i)) * std::exp2(static_cast<float>(i % 37)); }
    std::vector<const void*> pointers;
    for (const auto& input : inputs) { pointers.push_back(input.data()); }
    std::vector<float> at_once(1000), by_steps(1000);
    reduce_ranks(Dtype::f32, ReduceOp::sum, at_once.data(), pointers.data(), 4, 1000);
    reduce_pair(Dtype::f32, ReduceOp::sum, by_steps.data(), pointers[0], pointers[1], 1000);
    accumulate(Dtype::f32, ReduceOp::sum, by_steps.data(), pointers[2], 1000);
    accumulate(Dtype::f32, ReduceOp::sum, by_steps.data(), pointers[3], 1000);
    EXPECT_EQ(by_steps, at_once);
}

TEST(RankSum, IntegersWrapAndNanWinsAMaximum)
{
    const std::int64_t top = std::numeric_limits<std::int64_t>::max(), one = 1;
    std::int64_t sum = 0;
    reduce_pair(Dtype::i64, ReduceOp::sum, &sum, &top, &one, 1);
    EXPECT_EQ(sum, std::numeric_limits<std::int64_t>::min());
    const float nan = std::numeric_limits<float>::quiet_NaN(), three = 3;
    float largest = 0;
    reduce_pair(Dtype::f32, ReduceOp::max, &largest, &nan, &three, 1);
    EXPECT_TRUE(std::isnan(largest));
    reduce_pair(Dtype::f32, ReduceOp::max, &largest, &three, &nan, 1);
    EXPECT_TRUE(std::isnan(largest));
}

TEST(RankSum, Bf16IsSummedInFp32AndRoundedOnce)
{
    // bf16 counts in steps of 2 from 256 on: rounded after each rank, every 1 would be lost (ties go to even).
    for (const std::size_t num : {2, 3, 5})
    {
        std::vector<std::vector<Bf16>> inputs{std::vector<Bf16>(5000, Bf16(256.0F))};
        for (std::size_t i = 1; i < num; ++i) { inputs.emplace_back(5000, Bf16(1.0F)); }
        std::vector<const void*> pointers;
        for (const auto& input : inputs) { pointers.push_back(input.data()); }
        reduce_ranks(Dtype::bf16, ReduceOp::sum, inputs.back().data(), pointers.data(), static_cast<std::int64_t>(num), 5000);
        const float wanted = Bf16(255.0F + static_cast<float>(num));
        for (const Bf16 sum : inputs.back()) { ASSERT_EQ(float(sum), wanted) << num; }
    }
    const Bf16 minus(-2.0F), three(3.0F);
    Bf16 largest(0.0F);
    reduce_pair(Dtype::bf16, ReduceOp::max, &largest, &minus, &three, 1);
    EXPECT_EQ(float(largest), 3);
}

TEST(RankSum, RefusesTypesThatHaveNoSum)
{
    float value = 0;
    EXPECT_THROW(accumulate(Dtype::f16, ReduceOp::sum, &value, &value, 1), InternalError);
    EXPECT_FALSE(can_reduce(Dtype::u64));
    EXPECT_TRUE(can_reduce(Dtype::u8));
}

TEST(PartOf, PartsFollowEachOtherAndCoverAll)
{
    for (const std::int64_t count : {0, 1, 63, 64, 65, 1000, 100003})
    {
        for (const std::int64_t size : {1, 2, 3, 8})
        {
            std::int64_t next = 0;
            for (std::int64_t rank = 0; rank < size; ++rank)
            {
                const Part part = part_of(count, size, rank);
                EXPECT_EQ(part.first, next);
                EXPECT_GE(part.count, 0);
                EXPECT_TRUE(part.first % 64 == 0 || part.first == count);
                next += part.count;
            }
            EXPECT_EQ(next, count);
        }
    }
}
