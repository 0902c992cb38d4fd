#include "telemetry/chart_axis.hpp"

#include <gtest/gtest.h>

#include <cmath>

using namespace plimsoll;

namespace
{

std::string labels(const ChartAxis& axis)
{
    std::string text;
    for (const AxisTick& tick : axis.ticks) { text += (text.empty() ? "" : " ") + tick.label; }
    return text;
}

}  // namespace

TEST(ChartAxis, TicksAreRoundAndEncloseTheValues)
{
    EXPECT_EQ(labels(make_axis(0, 100, 6)), "0 20 40 60 80 100");
    EXPECT_EQ(labels(make_axis(2.31, 10.84, 6)), "2 4 6 8 10 12");
    EXPECT_EQ(labels(make_axis(0.031, 0.0587, 5)), "0.03 0.04 0.05 0.06");
    EXPECT_EQ(labels(make_axis(-3, 3, 7)), "-3 -2 -1 0 1 2 3");
    EXPECT_EQ(labels(make_axis(-3, 3, 6)), "-4 -2 0 2 4");
    EXPECT_EQ(labels(make_axis(0, 123456, 5)), "0 50K 100K 150K");
    EXPECT_EQ(labels(make_axis(0, 6e-4, 4)), "0 2e-04 4e-04 6e-04");
}

TEST(ChartAxis, EqualValuesGetRoom)
{
    for (const double value : {0.0, 3.0, -2.5, 1e-12, 1e12})
    {
        const ChartAxis axis = make_axis(value, value, 5);
        EXPECT_LT(axis.low, axis.high);
        EXPECT_GT(axis.position(value), 0.0);
        EXPECT_LT(axis.position(value), 1.0);
        EXPECT_FALSE(axis.ticks.empty());
    }
}

TEST(ChartAxis, NeverMoreTicksThanAskedFor)
{
    for (int ticks = 3; ticks <= 10; ++ticks)
    {
        for (const double low : {-7.3, 0.0, 0.99, 1234.5})
        {
            for (const double length : {1e-3, 0.7, 9.99, 31415.0})
            {
                const ChartAxis axis = make_axis(low, low + length, ticks);
                EXPECT_LE(static_cast<int>(axis.ticks.size()), ticks) << low << " " << length << " " << ticks;
                EXPECT_LE(axis.low, low + 1e-9);
                EXPECT_GE(axis.high, low + length - 1e-9);
            }
        }
    }
}

TEST(ChartAxis, LogTicks)
{
    EXPECT_EQ(labels(make_axis(0.3, 11, 7, AxisScale::log)), "0.2 0.5 1 2 5 10 20");
    EXPECT_EQ(labels(make_axis(0.3, 11, 6, AxisScale::log)), "0.3 1 3 10 30") << "fewer where there is less room";
    EXPECT_EQ(labels(make_axis(2, 10, 6, AxisScale::log)), "2 5 10");
}

TEST(ChartAxis, LogTicksOfManyDecades)
{
    const ChartAxis axis = make_axis(3e-6, 2e5, 6, AxisScale::log);
    EXPECT_LE(axis.low, 3e-6);
    EXPECT_GE(axis.high, 2e5);
    EXPECT_LE(axis.ticks.size(), 6U);
    EXPECT_NEAR(axis.position(axis.low), 0, 1e-12);
    EXPECT_NEAR(axis.position(axis.high), 1, 1e-12);
    EXPECT_LT(axis.position(0), 0);
}

TEST(ChartAxis, ALogAxisNeedsPositiveValues)
{
    EXPECT_EQ(make_axis(0, 100, 5, AxisScale::log).scale, AxisScale::linear);
    EXPECT_EQ(make_axis(5, 5, 5, AxisScale::log).scale, AxisScale::log);
    EXPECT_EQ(choose_scale(2.5, 10.8), AxisScale::linear);
    EXPECT_EQ(choose_scale(0.1, 10.8), AxisScale::log);
    EXPECT_EQ(choose_scale(-0.1, 10.8), AxisScale::linear);
}

TEST(ChartAxis, StepsAreTheRange)
{
    EXPECT_EQ(labels(make_step_axis(1, 61, 6)), "20 40 60");
    EXPECT_EQ(labels(make_step_axis(1, 3, 6)), "1 2 3");
    EXPECT_EQ(labels(make_step_axis(5, 5, 6)), "5");
    EXPECT_EQ(labels(make_step_axis(1, 250000, 6)), "50K 100K 150K 200K 250K");
    EXPECT_EQ(make_step_axis(5, 5, 6).position(5), 0);
}

TEST(ShortNumber, FitsAnAxis)
{
    EXPECT_EQ(short_number(0), "0");
    EXPECT_EQ(short_number(0.25), "0.25");
    EXPECT_EQ(short_number(2.3456), "2.346");
    EXPECT_EQ(short_number(99.99), "100");
    EXPECT_EQ(short_number(999.99), "1K");
    EXPECT_EQ(short_number(1500), "1.5K");
    EXPECT_EQ(short_number(-20e6), "-20M");
    EXPECT_EQ(short_number(6e-4), "6e-04");
    EXPECT_EQ(short_number(0.001), "0.001");
    EXPECT_EQ(short_number(3e15), "3e+15");
    EXPECT_EQ(short_number(std::nan("")), "nan");
    EXPECT_EQ(short_number(-INFINITY), "-inf");
}
