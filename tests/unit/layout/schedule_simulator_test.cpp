#include "layout/schedule_simulator.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "layout/schedule_generators.hpp"

namespace plimsoll
{
namespace
{

ActionTimes times_of(double forward, double input, double weight)
{
    ActionTimes times;
    times.forward = forward;
    times.backward_input = input;
    times.backward_weight = weight;
    return times;
}

/// Time that a stage stands still in a step.
double bubble_time(const PipelineSchedule& schedule, const ActionTimes& times)
{
    const SimulatedSchedule done = simulate_schedule(schedule, times);
    return done.length - done.stages[0].busy;
}

const std::vector<ActionTimes> several_times = {times_of(1, 1, 1), times_of(2, 3, 1), times_of(3, 3, 3)};

}  // namespace

TEST(ScheduleSimulator, OneStageNeverWaits)
{
    const SimulatedSchedule done = simulate_schedule(make_single_stage_schedule(3), times_of(1, 1.5, 0.5));
    EXPECT_EQ(done.length, 9);
    EXPECT_EQ(done.bubble(), 0);
    EXPECT_EQ(done.stages[0].idle_inside, 0);
    ASSERT_EQ(done.stages[0].work.size(), 6U);
    EXPECT_EQ(done.stages[0].work[1].start, 1);
    EXPECT_EQ(done.stages[0].work[1].end, 3);
}

TEST(ScheduleSimulator, TwoStagesByHand)
{
    // stage 0  F0 F1 .. B0 B0 .. B1 B1     F 1, B 2: stage 1 works from 1 to 7, stage 0 has gradients at 4 and 7
    // stage 1  .. F0 B0 B0 F1 B1 B1
    const SimulatedSchedule done = simulate_schedule(make_1f1b_schedule(2, 2), times_of(1, 1, 1));
    EXPECT_EQ(done.stages[0].work[2].start, 4);
    EXPECT_EQ(done.stages[0].work[3].start, 7);
    EXPECT_EQ(done.stages[1].work[0].start, 1);
    EXPECT_EQ(done.length, 9);
    EXPECT_EQ(done.stages[0].idle_inside, 3);
    EXPECT_EQ(done.stages[1].idle_inside, 0);
    EXPECT_DOUBLE_EQ(done.bubble(), 1.0 / 3);
}

TEST(ScheduleSimulator, AScheduleThatBlocksIsNotSimulated)
{
    PipelineSchedule schedule = make_1f1b_schedule(2, 2);
    schedule.stages[1].clear();
    EXPECT_THROW(simulate_schedule(schedule, ActionTimes()), InternalError);
}

// Formulas: Narayanan et al. 2021 (1f1b, interleaved), Huang et al. 2019 (gpipe), Qi et al. 2023 (zb-h1, zbv).

TEST(Bubble, GPipeAnd1F1BLoseAFullPassThroughTheOtherStages)
{
    for (std::int64_t stages = 1; stages <= 8; ++stages)
    {
        for (std::int64_t m = 1; m <= 16; ++m)
        {
            const double share = static_cast<double>(stages - 1) / static_cast<double>(m + stages - 1);
            for (const auto& make : {make_gpipe_schedule, make_1f1b_schedule})
            {
                EXPECT_NEAR(simulate_schedule(make(stages, m), times_of(1, 1, 1)).bubble(), share, 1e-12) << stages << " " << m;
                for (const ActionTimes& times : several_times)
                {
                    const double full = times.forward + times.backward_input + times.backward_weight;
                    EXPECT_EQ(bubble_time(make(stages, m), times), static_cast<double>(stages - 1) * full) << stages << " " << m;
                }
            }
        }
    }
}

TEST(Bubble, InterleavingDividesItByTheChunks)
{
    for (std::int64_t stages = 1; stages <= 8; ++stages)
    {
        for (std::int64_t m = stages; m <= 16; m += stages)
        {
            for (std::int64_t chunks = 1; chunks <= 4; ++chunks)
            {
                const double share = static_cast<double>(stages - 1) / static_cast<double>(chunks * m + stages - 1);
                const PipelineSchedule schedule = make_interleaved_schedule(stages, m, chunks);
                EXPECT_NEAR(simulate_schedule(schedule, times_of(1, 1, 1)).bubble(), share, 1e-12)
                    << stages << " stages, " << m << " micro-batches, " << chunks << " chunks";
            }
        }
    }
}

TEST(Bubble, ZbH1FillsItWithTheWeightsOfTheEnd)
{
    for (std::int64_t stages = 1; stages <= 8; ++stages)
    {
        for (std::int64_t m = stages; m <= 16; ++m)
        {
            for (const ActionTimes& times : {times_of(1, 1, 1), times_of(2, 3, 2), times_of(4, 3, 2), times_of(3, 2, 1)})
            {
                const double less = times.forward + times.backward_input - times.backward_weight;
                EXPECT_EQ(bubble_time(make_zb_h1_schedule(stages, m), times), static_cast<double>(stages - 1) * less)
                    << stages << " " << m;
            }
        }
    }
}

TEST(Bubble, ZbH1NeverLosesMoreThan1F1B)
{
    for (std::int64_t stages = 1; stages <= 8; ++stages)
    {
        for (std::int64_t m = 1; m <= 16; ++m)
        {
            for (const ActionTimes& times : several_times)
            {
                EXPECT_LE(bubble_time(make_zb_h1_schedule(stages, m), times), bubble_time(make_1f1b_schedule(stages, m), times));
            }
        }
    }
}

TEST(Bubble, ZbvHasNoIdleSlotOnceTheVIsFull)
{
    for (std::int64_t stages = 1; stages <= 8; ++stages)
    {
        for (std::int64_t m = 2 * stages - 1; m <= 2 * stages + 16; ++m)
        {
            const SimulatedSchedule done = simulate_schedule(make_zbv_schedule(stages, m), times_of(1, 1, 1));
            for (const SimulatedStage& stage : done.stages) { EXPECT_EQ(stage.idle_inside, 0) << stages << " " << m; }
            EXPECT_EQ(done.length, static_cast<double>(6 * m + stages - 1)) << stages << " " << m;
        }
    }
}

}  // namespace plimsoll
