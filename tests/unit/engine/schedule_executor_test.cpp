#include "engine/schedule_executor.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.hpp"
#include "layout/schedule_generators.hpp"

using namespace plimsoll;

namespace
{

struct Log
{
    std::vector<std::string> lines;

    ScheduleCallbacks callbacks()
    {
        ScheduleCallbacks made;
        made.forward = [this](const Action& a) { lines.push_back("F" + std::to_string(a.micro_batch)); };
        made.backward = [this](const Action& a) { lines.push_back("BW" + std::to_string(a.micro_batch)); };
        made.backward_input = [this](const Action& a) { lines.push_back("B" + std::to_string(a.micro_batch)); };
        made.backward_weight = [this](const Action& a) { lines.push_back("W" + std::to_string(a.micro_batch)); };
        return made;
    }
};

}  // namespace

TEST(ScheduleExecutor, RunsASingleStageInTheOrderOfTheSchedule)
{
    Log log;
    run_schedule(make_single_stage_schedule(2), 0, log.callbacks());
    EXPECT_EQ(log.lines, (std::vector<std::string>{"F0", "BW0", "F1", "BW1"}));
}

TEST(ScheduleExecutor, FollowsAnyOrderItIsGiven)
{
    PipelineSchedule schedule;
    schedule.num_micro_batches = 1;
    schedule.stages = {{{ActionKind::forward, 0, 0}}, {{ActionKind::backward_weight, 0, 0}, {ActionKind::forward, 0, 0}}};
    Log log;
    run_schedule(schedule, 1, log.callbacks());
    EXPECT_EQ(log.lines, (std::vector<std::string>{"W0", "F0"}));
}

TEST(ScheduleExecutor, CallsAfterActionOnceForEachAction)
{
    Log log;
    int after = 0;
    ScheduleCallbacks callbacks = log.callbacks();
    callbacks.after_action = [&](const Action&) { ++after; };
    run_schedule(make_single_stage_schedule(3), 0, callbacks);
    EXPECT_EQ(after, 6);
}

TEST(ScheduleExecutor, NamesTheActionThatFailed)
{
    Log log;
    ScheduleCallbacks callbacks = log.callbacks();
    callbacks.backward = [](const Action& a)
    {
        if (a.micro_batch == 1) { throw NumericError("loss is nan"); }
    };
    try
    {
        run_schedule(make_single_stage_schedule(2), 0, callbacks);
        FAIL() << "nothing was thrown";
    }
    catch (const NumericError& error)
    {
        EXPECT_STREQ(error.what(), "in backward of micro-batch 1: loss is nan");
    }
}

TEST(ScheduleExecutor, RefusesAnActionWithoutCallback)
{
    PipelineSchedule schedule;
    schedule.stages = {{{ActionKind::send_activation, 0, 0}}};
    EXPECT_THROW(run_schedule(schedule, 0, Log().callbacks()), InternalError);
}
