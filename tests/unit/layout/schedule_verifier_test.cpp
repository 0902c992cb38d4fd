#include "layout/schedule_generators.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/error.hpp"

namespace plimsoll
{
namespace
{

using Faults = std::vector<std::string>;
using Kind = ActionKind;

/// One-forward-one-backward over `num_stages` stages, with B and W apart.
PipelineSchedule one_forward_one_backward(std::int64_t num_stages, std::int64_t num_micro_batches)
{
    PipelineSchedule schedule;
    schedule.num_micro_batches = num_micro_batches;
    for (std::int64_t stage = 0; stage < num_stages; ++stage)
    {
        std::vector<Action> actions;
        const auto forward = [&](std::int64_t m)
        {
            if (stage > 0) { actions.push_back({Kind::recv_activation, m, 0}); }
            actions.push_back({Kind::forward, m, 0});
            if (stage + 1 < num_stages) { actions.push_back({Kind::send_activation, m, 0}); }
        };
        const auto backward = [&](std::int64_t m)
        {
            if (stage + 1 < num_stages) { actions.push_back({Kind::recv_gradient, m, 0}); }
            actions.push_back({Kind::backward_input, m, 0});
            if (stage > 0) { actions.push_back({Kind::send_gradient, m, 0}); }
            actions.push_back({Kind::backward_weight, m, 0});
        };
        const std::int64_t warm_up = std::min(num_stages - stage, num_micro_batches);
        for (std::int64_t m = 0; m < warm_up; ++m) { forward(m); }
        for (std::int64_t m = 0; m < num_micro_batches; ++m)
        {
            backward(m);
            if (m + warm_up < num_micro_batches) { forward(m + warm_up); }
        }
        schedule.stages.push_back(actions);
    }
    return schedule;
}

/// Two stages of two chunks, one micro-batch: virtual stages 0 1 2 3 on stages 0 1 0 1.
PipelineSchedule two_chunks()
{
    PipelineSchedule schedule;
    schedule.num_micro_batches = 1;
    schedule.num_chunks = 2;
    schedule.stages = {
        {{Kind::forward, 0, 0}, {Kind::send_activation, 0, 0}, {Kind::recv_activation, 0, 1}, {Kind::forward, 0, 1},
         {Kind::send_activation, 0, 1}, {Kind::recv_gradient, 0, 1}, {Kind::backward, 0, 1}, {Kind::send_gradient, 0, 1},
         {Kind::recv_gradient, 0, 0}, {Kind::backward, 0, 0}},
        {{Kind::recv_activation, 0, 0}, {Kind::forward, 0, 0}, {Kind::send_activation, 0, 0}, {Kind::recv_activation, 0, 1},
         {Kind::forward, 0, 1}, {Kind::backward, 0, 1}, {Kind::send_gradient, 0, 1}, {Kind::recv_gradient, 0, 0},
         {Kind::backward, 0, 0}, {Kind::send_gradient, 0, 0}},
    };
    return schedule;
}

std::size_t place(const std::vector<Action>& actions, const Action& action)
{
    const auto it = std::find(actions.begin(), actions.end(), action);
    EXPECT_NE(it, actions.end());
    return static_cast<std::size_t>(it - actions.begin());
}

void erase(std::vector<Action>& actions, const Action& action)
{
    actions.erase(actions.begin() + static_cast<std::ptrdiff_t>(place(actions, action)));
}

TEST(VerifySchedule, EmptySchedulesAreRefused)
{
    EXPECT_EQ(verify_schedule(PipelineSchedule{}),
              Faults{"schedule has 0 stages and 1 micro-batches (both must be at least 1)"});
    PipelineSchedule none = make_single_stage_schedule(1);
    none.num_micro_batches = 0;
    EXPECT_EQ(verify_schedule(none), Faults{"schedule has 1 stages and 0 micro-batches (both must be at least 1)"});
}

TEST(VerifySchedule, OneForwardOneBackwardIsSound)
{
    for (const std::int64_t stages : {1, 2, 3, 8})
    {
        for (const std::int64_t micro_batches : {1, 2, 5, 16})
        {
            const PipelineSchedule schedule = one_forward_one_backward(stages, micro_batches);
            EXPECT_EQ(verify_schedule(schedule), Faults{}) << stages << " " << micro_batches;
            for (std::int64_t stage = 0; stage < stages; ++stage)
            {
                EXPECT_EQ(max_in_flight(schedule, stage), std::min(stages - stage, micro_batches));
            }
        }
    }
}

TEST(VerifySchedule, ChunksOfOneStageArePlaces)
{
    EXPECT_EQ(verify_schedule(two_chunks()), Faults{});
    EXPECT_EQ(max_in_flight(two_chunks(), 0), 2);
    EXPECT_THROW(max_in_flight(two_chunks(), 2), InternalError);
}

TEST(VerifySchedule, UnknownMicroBatchesAreNamed)
{
    PipelineSchedule schedule = make_single_stage_schedule(1);
    schedule.stages[0][1].micro_batch = 3;
    EXPECT_EQ(verify_schedule(schedule), Faults{"stage 0: backward of micro-batch 3 does not exist (1 micro-batches, 1 chunks)"});
    schedule.stages[0][1] = {Kind::backward, 0, -1};
    EXPECT_EQ(verify_schedule(schedule), Faults{"stage 0: backward of micro-batch 0 chunk -1 does not exist (1 micro-batches, 1 chunks)"});
}

TEST(VerifySchedule, MissingAndRepeatedWorkIsNamed)
{
    PipelineSchedule schedule = make_single_stage_schedule(2);
    schedule.stages[0].pop_back();
    EXPECT_EQ(verify_schedule(schedule), (Faults{"stage 0: backward_input of micro-batch 1 is missing",
                                                 "stage 0: backward_weight of micro-batch 1 is missing"}));
    schedule = make_single_stage_schedule(2);
    schedule.stages[0].push_back({Kind::backward, 0, 0});
    EXPECT_EQ(verify_schedule(schedule), Faults{"stage 0: backward of micro-batch 0 stands 2 times"});
    schedule = make_single_stage_schedule(1);
    schedule.stages[0].push_back({Kind::backward_weight, 0, 0});
    EXPECT_EQ(verify_schedule(schedule), Faults{"stage 0: backward_weight of micro-batch 0 stands beside its backward"});
}

TEST(VerifySchedule, WrongOrderIsNamed)
{
    PipelineSchedule schedule = make_single_stage_schedule(1);
    std::swap(schedule.stages[0][0], schedule.stages[0][1]);
    EXPECT_EQ(verify_schedule(schedule), Faults{"stage 0: backward of micro-batch 0 stands before forward of micro-batch 0"});
    schedule = one_forward_one_backward(1, 1);
    std::swap(schedule.stages[0][1], schedule.stages[0][2]);
    EXPECT_EQ(verify_schedule(schedule),
              Faults{"stage 0: backward_weight of micro-batch 0 stands before backward_input of micro-batch 0"});
    schedule = one_forward_one_backward(2, 1);
    std::swap(schedule.stages[1][0], schedule.stages[1][1]);
    EXPECT_EQ(verify_schedule(schedule),
              Faults{"stage 1: forward of micro-batch 0 stands before recv_activation of micro-batch 0"});
    schedule = one_forward_one_backward(2, 1);
    std::swap(schedule.stages[0][0], schedule.stages[0][1]);
    EXPECT_EQ(verify_schedule(schedule),
              Faults{"stage 0: send_activation of micro-batch 0 stands before forward of micro-batch 0"});
}

TEST(VerifySchedule, TransfersWithoutPartnerAreNamed)
{
    PipelineSchedule schedule = one_forward_one_backward(2, 2);
    erase(schedule.stages[0], {Kind::send_activation, 1, 0});
    EXPECT_EQ(verify_schedule(schedule), Faults{"stage 0: send_activation of micro-batch 1 is missing"});
    schedule = one_forward_one_backward(2, 2);
    erase(schedule.stages[0], {Kind::recv_gradient, 1, 0});
    EXPECT_EQ(verify_schedule(schedule), Faults{"stage 0: recv_gradient of micro-batch 1 is missing"});
    schedule = one_forward_one_backward(2, 2);
    schedule.stages[1].push_back({Kind::send_activation, 0, 0});
    EXPECT_EQ(verify_schedule(schedule), Faults{"stage 1: send_activation of micro-batch 0 has no partner stage"});
    schedule = make_single_stage_schedule(1);
    schedule.stages[0].push_back({Kind::send_gradient, 0, 0});
    EXPECT_EQ(verify_schedule(schedule), Faults{"stage 0: send_gradient of micro-batch 0 has no partner stage"});
}

TEST(VerifySchedule, ReceivesFollowTheOrderOfSends)
{
    PipelineSchedule schedule = one_forward_one_backward(2, 2);
    std::vector<Action>& first = schedule.stages[0];  // F0 S0 F1 S1 ... becomes F0 F1 S1 S0 ...
    std::swap(first[1], first[2]);
    std::swap(first[2], first[3]);
    EXPECT_EQ(verify_schedule(schedule),
              Faults{"stage 1: recv_activation of micro-batch 0 is not the next message that stage 0 sends"});
}

TEST(VerifySchedule, DeadlockIsFoundOnEveryStageThatWaits)
{
    // Stage 0 wants the gradient of micro-batch 0 before it sends micro-batch 1, stage 1 the other way round.
    PipelineSchedule schedule = one_forward_one_backward(2, 2);
    std::vector<Action>& first = schedule.stages[0];
    erase(first, {Kind::send_activation, 1, 0});
    const std::size_t after = place(first, {Kind::backward_input, 0, 0});
    first.insert(first.begin() + static_cast<std::ptrdiff_t>(after), {Kind::send_activation, 1, 0});
    std::vector<Action>& second = schedule.stages[1];
    erase(second, {Kind::recv_activation, 1, 0});
    const std::size_t before = place(second, {Kind::send_gradient, 0, 0});
    second.insert(second.begin() + static_cast<std::ptrdiff_t>(before), {Kind::recv_activation, 1, 0});
    EXPECT_EQ(verify_schedule(schedule), (Faults{"stage 0: recv_gradient of micro-batch 0 waits for ever (deadlock)",
                                                 "stage 1: recv_activation of micro-batch 1 waits for ever (deadlock)"}));
}

TEST(VerifySchedule, ShapesThatCannotBeAreNamed)
{
    PipelineSchedule schedule = make_single_stage_schedule(1);
    schedule.num_chunks = 0;
    EXPECT_EQ(verify_schedule(schedule), Faults{"schedule has 0 chunks per stage (at least 1)"});
    schedule = make_zbv_schedule(2, 2);
    schedule.num_chunks = 3;
    EXPECT_EQ(verify_schedule(schedule), Faults{"schedule has 3 chunks per stage (a V has 2)"});
    schedule = make_1f1b_schedule(3, 2);
    schedule.in_flight_limit.pop_back();
    EXPECT_EQ(verify_schedule(schedule), Faults{"schedule has 2 in-flight limits for 3 stages"});
}

TEST(VerifySchedule, MoreInFlightThanPromisedIsNamed)
{
    PipelineSchedule schedule = make_gpipe_schedule(2, 4);
    schedule.in_flight_limit = make_1f1b_schedule(2, 4).in_flight_limit;
    EXPECT_EQ(verify_schedule(schedule), (Faults{"stage 0: 4 in flight at once (schedule gpipe promises at most 2)",
                                                 "stage 1: 4 in flight at once (schedule gpipe promises at most 1)"}));
}

TEST(VerifySchedule, ChunksOfOneStageKeepTheOrderOfTheMicroBatch)
{
    // At the turn of the V, stage 1 hands chunk 0's activation to its chunk 1, and the gradient back.
    PipelineSchedule schedule = make_zbv_schedule(2, 1);
    std::vector<Action>& turn = schedule.stages[1];
    std::swap(turn[place(turn, {Kind::forward, 0, 0})], turn[place(turn, {Kind::forward, 0, 1})]);
    EXPECT_EQ(verify_schedule(schedule).back(), "stage 1: forward of micro-batch 0 chunk 1 stands before forward of micro-batch 0");
    schedule = make_zbv_schedule(2, 1);
    std::vector<Action>& back = schedule.stages[1];
    std::swap(back[place(back, {Kind::backward_input, 0, 0})], back[place(back, {Kind::backward_input, 0, 1})]);
    EXPECT_EQ(verify_schedule(schedule).front(),
              "stage 1: backward_input of micro-batch 0 stands before backward_input of micro-batch 0 chunk 1");
}

TEST(VerifySchedule, WhatTheWrongPlacementMakesOfAVIsRefused)
{
    PipelineSchedule schedule = make_zbv_schedule(3, 5);
    schedule.placement = ChunkPlacement::round_robin;
    EXPECT_FALSE(verify_schedule(schedule).empty());
    schedule = make_interleaved_schedule(3, 6, 2);
    schedule.placement = ChunkPlacement::v_shape;
    EXPECT_FALSE(verify_schedule(schedule).empty());
}

TEST(VerifySchedule, EveryDroppedActionOfEveryKindIsFound)
{
    for (int kind = 0; kind < num_pipeline_kinds; ++kind)
    {
        const PipelineSchedule sound = make_schedule(static_cast<PipelineKind>(kind), 3, 6, 2);
        for (std::size_t stage = 0; stage < sound.stages.size(); ++stage)
        {
            for (std::size_t i = 0; i < sound.stages[stage].size(); ++i)
            {
                PipelineSchedule broken = sound;
                broken.stages[stage].erase(broken.stages[stage].begin() + static_cast<std::ptrdiff_t>(i));
                EXPECT_FALSE(verify_schedule(broken).empty()) << sound.name << " " << stage << " " << i;
            }
        }
    }
}

TEST(VerifySchedule, EveryDroppedActionIsFound)
{
    const PipelineSchedule sound = one_forward_one_backward(3, 3);
    for (std::size_t stage = 0; stage < 3; ++stage)
    {
        for (std::size_t i = 0; i < sound.stages[stage].size(); ++i)
        {
            PipelineSchedule broken = sound;
            broken.stages[stage].erase(broken.stages[stage].begin() + static_cast<std::ptrdiff_t>(i));
            EXPECT_FALSE(verify_schedule(broken).empty()) << stage << " " << i;
        }
    }
}

}  // namespace
}  // namespace plimsoll
