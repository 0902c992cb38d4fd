#include "layout/schedule_generators.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "base/error.hpp"

namespace plimsoll
{
namespace
{

using Faults = std::vector<std::string>;
using Kind = ActionKind;

constexpr std::int64_t most_stages = 8, most_micro_batches = 16, most_chunks = 4;

/// Sound, and on each stage as many in flight as `expected` says for (S, s, m).
void check_every_shape(const std::function<PipelineSchedule(std::int64_t, std::int64_t)>& make,
                       const std::function<std::int64_t(std::int64_t, std::int64_t, std::int64_t)>& expected)
{
    for (std::int64_t stages = 1; stages <= most_stages; ++stages)
    {
        for (std::int64_t micro_batches = 1; micro_batches <= most_micro_batches; ++micro_batches)
        {
            const PipelineSchedule schedule = make(stages, micro_batches);
            ASSERT_EQ(verify_schedule(schedule), Faults{}) << stages << " stages, " << micro_batches << " micro-batches";
            ASSERT_EQ(schedule.num_stages(), stages);
            for (std::int64_t stage = 0; stage < stages; ++stage)
            {
                ASSERT_EQ(max_in_flight(schedule, stage), expected(stages, stage, micro_batches))
                    << stages << " stages, " << micro_batches << " micro-batches, stage " << stage;
                ASSERT_LE(max_in_flight(schedule, stage), schedule.in_flight_limit[static_cast<std::size_t>(stage)]);
            }
        }
    }
}

TEST(SingleStageSchedule, AlternatesForwardAndBackward)
{
    const PipelineSchedule schedule = make_single_stage_schedule(2);
    ASSERT_EQ(schedule.stages.size(), 1U);
    EXPECT_EQ(schedule.stages[0], (std::vector<Action>{{Kind::forward, 0, 0}, {Kind::backward, 0, 0}, {Kind::forward, 1, 0},
                                                       {Kind::backward, 1, 0}}));
    EXPECT_THROW(make_single_stage_schedule(0), InternalError);
}

TEST(SingleStageSchedule, IsSoundWithOneInFlight)
{
    for (const std::int64_t num : {1, 2, 7, 4096})
    {
        const PipelineSchedule schedule = make_single_stage_schedule(num);
        EXPECT_EQ(verify_schedule(schedule), Faults{});
        EXPECT_EQ(max_in_flight(schedule, 0), 1);
    }
}

TEST(OneForwardOneBackward, FirstOfTwoStagesByHand)
{
    const std::vector<Action> expected = {
        {Kind::forward, 0, 0},  {Kind::send_activation, 0, 0}, {Kind::forward, 1, 0},       {Kind::send_activation, 1, 0},
        {Kind::recv_gradient, 0, 0}, {Kind::backward, 0, 0},   {Kind::recv_gradient, 1, 0}, {Kind::backward, 1, 0}};
    EXPECT_EQ(make_1f1b_schedule(2, 2).stages[0], expected);
}

TEST(OneForwardOneBackward, IsSoundAndBoundedForEveryShape)
{
    check_every_shape(make_1f1b_schedule,
                      [](std::int64_t stages, std::int64_t stage, std::int64_t m) { return std::min(stages - stage, m); });
}

TEST(GPipe, IsSoundAndHoldsEveryMicroBatch)
{
    check_every_shape(make_gpipe_schedule, [](std::int64_t, std::int64_t, std::int64_t m) { return m; });
}

TEST(ZbH1, IsSoundAndHoldsOnEveryStageWhatTheFirstOf1F1BHolds)
{
    check_every_shape(make_zb_h1_schedule,
                      [](std::int64_t stages, std::int64_t, std::int64_t m) { return std::min(stages, m); });
}

TEST(ZbH1, LastOfTwoStagesByHand)
{
    const std::vector<Action> expected = {
        {Kind::recv_activation, 0, 0}, {Kind::forward, 0, 0},         {Kind::backward_input, 0, 0}, {Kind::send_gradient, 0, 0},
        {Kind::recv_activation, 1, 0}, {Kind::forward, 1, 0},         {Kind::backward_input, 1, 0}, {Kind::send_gradient, 1, 0},
        {Kind::backward_weight, 0, 0}, {Kind::backward_weight, 1, 0}};
    EXPECT_EQ(make_zb_h1_schedule(2, 2).stages[1], expected);
}

TEST(Zbv, IsSoundAndHoldsHalfStages)
{
    for (std::int64_t stages = 1; stages <= most_stages; ++stages)
    {
        for (std::int64_t m = 1; m <= most_micro_batches; ++m)
        {
            const PipelineSchedule schedule = make_zbv_schedule(stages, m);
            ASSERT_EQ(verify_schedule(schedule), Faults{}) << stages << " stages, " << m << " micro-batches";
            for (std::int64_t stage = 0; stage < stages; ++stage)
            {
                // In chunks: 2 S of them are what stage 0 of 1F1B holds in S whole stages.
                const std::int64_t held = max_in_flight(schedule, stage);
                ASSERT_LE(held, 2 * std::min(stages, m)) << stages << " " << m << " " << stage;
                if (m >= 2 * stages - 1) { ASSERT_EQ(held, 2 * stages) << stages << " " << m << " " << stage; }
            }
        }
    }
}

TEST(Zbv, TheTurnHandsOverWithoutAMessage)
{
    const PipelineSchedule schedule = make_zbv_schedule(2, 1);
    const std::vector<Action> turn = {{Kind::recv_activation, 0, 0}, {Kind::forward, 0, 0},         {Kind::forward, 0, 1},
                                      {Kind::send_activation, 0, 1}, {Kind::recv_gradient, 0, 1},   {Kind::backward_input, 0, 1},
                                      {Kind::backward_weight, 0, 1}, {Kind::backward_input, 0, 0},  {Kind::send_gradient, 0, 0},
                                      {Kind::backward_weight, 0, 0}};
    EXPECT_EQ(schedule.stages[1], turn);
}

TEST(Interleaved, IsSoundAndBoundedForEveryShape)
{
    for (std::int64_t stages = 1; stages <= most_stages; ++stages)
    {
        for (std::int64_t m = stages; m <= most_micro_batches; m += stages)
        {
            for (std::int64_t chunks = 1; chunks <= most_chunks; ++chunks)
            {
                const PipelineSchedule schedule = make_interleaved_schedule(stages, m, chunks);
                ASSERT_EQ(verify_schedule(schedule), Faults{}) << stages << " stages, " << m << " micro-batches, " << chunks;
                for (std::int64_t s = 0; s < stages; ++s)
                {
                    ASSERT_EQ(max_in_flight(schedule, s), std::min(m * chunks, 2 * (stages - s - 1) + (chunks - 1) * stages + 1))
                        << stages << " stages, " << m << " micro-batches, " << chunks << " chunks, stage " << s;
                }
            }
        }
    }
}

TEST(Interleaved, OneChunkHasTheOrderOf1F1BWithTwiceTheHeadStart)
{
    EXPECT_EQ(max_in_flight(make_interleaved_schedule(4, 8, 1), 0), 7);
    EXPECT_EQ(max_in_flight(make_1f1b_schedule(4, 8), 0), 4);
}

TEST(Interleaved, MicroBatchesComeInWholeGroups)
{
    EXPECT_THROW(make_interleaved_schedule(4, 6, 2), InternalError);
    EXPECT_THROW(make_interleaved_schedule(4, 2, 2), InternalError);
}

TEST(MakeSchedule, OneStageNeedsNoPipeline)
{
    for (int kind = 0; kind < num_pipeline_kinds; ++kind)
    {
        EXPECT_EQ(make_schedule(static_cast<PipelineKind>(kind), 1, 3, 2).stages, make_single_stage_schedule(3).stages);
    }
}

TEST(MakeSchedule, EveryKindIsSoundUnderItsName)
{
    const std::vector<std::string> names = pipeline_kind_names();
    EXPECT_EQ(names, (std::vector<std::string>{"1f1b", "gpipe", "interleaved", "zb-h1", "zbv"}));
    for (const std::string& name : names)
    {
        const PipelineKind kind = parse_pipeline_kind(name);
        const PipelineSchedule schedule = make_schedule(kind, 4, 8, 2);
        EXPECT_EQ(schedule.name, name);
        EXPECT_EQ(schedule.placement, placement_of(kind));
        EXPECT_EQ(verify_schedule(schedule), Faults{});
    }
    EXPECT_THROW(parse_pipeline_kind("dualpipe"), ConfigError);
}

}  // namespace
}  // namespace plimsoll
