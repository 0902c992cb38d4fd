#include "telemetry/curve.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

using namespace plimsoll;

TEST(Curve, OneStepIsOneBucket)
{
    Curve curve(7, 7, 400);
    EXPECT_TRUE(curve.buckets().empty());
    EXPECT_TRUE(std::isnan(curve.last_value()));
    curve.add(7, 2.5);
    ASSERT_EQ(curve.buckets().size(), 1U);
    EXPECT_EQ(curve.buckets()[0].first_step, 7);
    EXPECT_EQ(curve.buckets()[0].last_step, 7);
    EXPECT_EQ(curve.buckets()[0].mean(), 2.5);
    EXPECT_EQ(curve.first_value(), 2.5);
}

TEST(Curve, FewStepsKeepOneEach)
{
    Curve curve(1, 400, 400);
    for (int step = 1; step <= 400; ++step) { curve.add(step, step); }
    EXPECT_EQ(curve.bucket_steps(), 1);
    EXPECT_EQ(curve.buckets().size(), 400U);
}

TEST(Curve, ManyStepsKeepExtremesInABoundedNumberOfBuckets)
{
    Curve curve(1, 1000003, 400);
    for (int step = 1; step <= 1000003; ++step) { curve.add(step, step == 500000 ? 99 : step == 500001 ? -9 : 1); }
    const auto buckets = curve.buckets();
    EXPECT_LE(buckets.size(), 400U);
    EXPECT_EQ(buckets.back().last_step, 1000003);
    EXPECT_EQ(curve.minimum(), -9);
    EXPECT_EQ(curve.maximum(), 99);
    std::int64_t count = 0;
    double highest = 0;
    for (const CurveBucket& bucket : buckets)
    {
        count += bucket.count;
        highest = std::max(highest, bucket.maximum);
        EXPECT_LE(bucket.last_step - bucket.first_step + 1, curve.bucket_steps());
    }
    EXPECT_EQ(count, 1000003);
    EXPECT_EQ(highest, 99) << "a spike of one step is still seen";
}

TEST(Curve, ValuesThatAreNoNumberAreCountedApart)
{
    Curve curve(1, 4, 2);
    curve.add(1, 3);
    curve.add(2, std::nan(""));
    curve.add(3, std::numeric_limits<double>::infinity());
    const auto buckets = curve.buckets();
    ASSERT_EQ(buckets.size(), 2U);
    EXPECT_EQ(buckets[0].count, 1);
    EXPECT_EQ(buckets[0].mean(), 3);
    EXPECT_EQ(buckets[0].not_finite, 1);
    EXPECT_EQ(buckets[1].count, 0);
    EXPECT_EQ(buckets[1].not_finite, 1);
    EXPECT_EQ(curve.maximum(), 3);
    EXPECT_EQ(curve.not_finite(), 2);
    EXPECT_TRUE(std::isinf(curve.last_value()));
    EXPECT_EQ(curve.last_value_step(), 3);
}

TEST(BoundedMedian, IsTheMiddleOne)
{
    BoundedMedian median;
    EXPECT_EQ(median.value(), 0);
    median.add(std::nan(""));
    EXPECT_EQ(median.value(), 0);
    for (const double value : {9.0, 1.0, 5.0}) { median.add(value); }
    EXPECT_EQ(median.value(), 5);
    median.add(6);
    EXPECT_EQ(median.value(), 5) << "the lower of two";
}

TEST(BoundedMedian, StaysNearWhenItThinsOut)
{
    BoundedMedian median(64);
    for (int k = 0; k < 100000; ++k) { median.add((k * 7919) % 1000); }
    EXPECT_EQ(median.count(), 100000);
    EXPECT_NEAR(median.value(), 500, 100);
}
