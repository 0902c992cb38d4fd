// Learning rate tables. Steps count from 1.

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"
#include "nn/lr_schedule.hpp"

namespace plimsoll::nn
{
namespace
{

LrSchedule make(ScheduleKind kind, std::int64_t warmup, std::int64_t decay, std::int64_t total)
{
    LrSchedule schedule;
    schedule.kind = kind;
    schedule.lr = 1.0;
    schedule.min_lr = 0.1;
    schedule.warmup_steps = warmup;
    schedule.decay_steps = decay;
    schedule.total_steps = total;
    return schedule;
}

TEST(LrSchedule, Tables)
{
    struct Row
    {
        LrSchedule schedule;
        std::int64_t step;
        double rate;
    };
    const ScheduleKind constant = ScheduleKind::constant, cosine = ScheduleKind::cosine, wsd = ScheduleKind::wsd;
    const Row rows[] = {
        // one step
        {make(constant, 0, 0, 1), 1, 1.0},
        {make(cosine, 0, 0, 1), 1, 0.1},
        {make(wsd, 0, 1, 1), 1, 0.1},
        {make(cosine, 1, 0, 1), 1, 1.0},
        // warm-up reaches lr at its last step
        {make(constant, 4, 0, 10), 1, 0.25},
        {make(constant, 4, 0, 10), 4, 1.0},
        {make(constant, 4, 0, 10), 5, 1.0},
        {make(constant, 4, 0, 10), 999, 1.0},
        // cosine: half way between lr and min-lr in the middle, min-lr at the end and after
        {make(cosine, 10, 0, 110), 10, 1.0},
        {make(cosine, 10, 0, 110), 35, 0.1 + 0.9 * 0.5 * (1 + std::sqrt(0.5))},
        {make(cosine, 10, 0, 110), 60, 0.55},
        {make(cosine, 10, 0, 110), 110, 0.1},
        {make(cosine, 10, 0, 110), 200, 0.1},
        // wsd: constant, then a line to min-lr
        {make(wsd, 10, 20, 100), 5, 0.5},
        {make(wsd, 10, 20, 100), 10, 1.0},
        {make(wsd, 10, 20, 100), 80, 1.0},
        {make(wsd, 10, 20, 100), 81, 1.0 - 0.9 / 20},
        {make(wsd, 10, 20, 100), 90, 0.55},
        {make(wsd, 10, 20, 100), 100, 0.1},
        {make(wsd, 10, 20, 100), 101, 0.1},
        {make(wsd, 10, 0, 100), 100, 1.0},
        {make(wsd, 80, 20, 100), 80, 1.0},
        {make(wsd, 80, 20, 100), 90, 0.55},
    };
    for (const Row& row : rows)
    {
        validate_lr_schedule(row.schedule);
        EXPECT_NEAR(learning_rate(row.schedule, row.step), row.rate, 1e-14)
            << "kind " << int(row.schedule.kind) << " step " << row.step << " of " << row.schedule.total_steps;
    }
}

TEST(LrSchedule, NeverLeavesItsBoundsAndNeverRisesAfterTheWarmUp)
{
    for (const ScheduleKind kind : {ScheduleKind::constant, ScheduleKind::cosine, ScheduleKind::wsd})
    {
        const LrSchedule schedule = make(kind, 7, 13, 101);
        for (std::int64_t step = 1; step <= 110; ++step)
        {
            const double rate = learning_rate(schedule, step);
            EXPECT_LE(rate, 1.0);
            EXPECT_GE(rate, step < 7 ? 0.0 : 0.1 - 1e-15);
            if (step > 7) { EXPECT_LE(rate, learning_rate(schedule, step - 1) + 1e-15); }
            else { EXPECT_GT(rate, learning_rate(schedule, step - 1)); }
        }
    }
}

std::string message_of(const LrSchedule& schedule)
{
    try
    {
        validate_lr_schedule(schedule);
    }
    catch (const ConfigError& error)
    {
        return error.text();
    }
    return "accepted";
}

TEST(LrSchedule, RefusesWhatDoesNotFit)
{
    EXPECT_EQ(message_of(make(ScheduleKind::wsd, 81, 20, 100)),
              "warmup 81 + decay 20 steps exceed the run's 100 steps. shorten one of them");
    EXPECT_EQ(message_of(make(ScheduleKind::cosine, 81, 20, 100)), "accepted");
    EXPECT_EQ(message_of(make(ScheduleKind::cosine, -1, 0, 100)), "warmup -1 and decay 0 must not be negative (steps)");
    LrSchedule rising = make(ScheduleKind::cosine, 0, 0, 100);
    rising.min_lr = 2.0;
    EXPECT_EQ(message_of(rising), "min-lr 2 is not between 0 and lr 1");
}

TEST(LrSchedule, NamesAreThoseOfTheRunFile)
{
    EXPECT_EQ(schedule_kind("constant"), ScheduleKind::constant);
    EXPECT_EQ(schedule_kind("cosine"), ScheduleKind::cosine);
    EXPECT_EQ(schedule_kind("wsd"), ScheduleKind::wsd);
    try
    {
        schedule_kind("linear");
        FAIL() << "accepted";
    }
    catch (const ConfigError& error)
    {
        EXPECT_EQ(error.text(), "unknown schedule 'linear'. known: constant cosine wsd");
    }
}

}  // namespace
}  // namespace plimsoll::nn
