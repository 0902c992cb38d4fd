#include "layout/send_order.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "layout/schedule_generators.hpp"

using namespace plimsoll;

namespace
{

using Kind = ActionKind;
using Sends = std::vector<Action>;

std::vector<Sends> send_lists(const PipelineSchedule& schedule, std::int64_t stage)
{
    SendOrder order(schedule, stage);
    std::vector<Sends> lists;
    for (std::size_t i = 0; i < schedule.actions(stage).size(); ++i) { lists.push_back(order.after()); }
    lists.push_back(order.finish());
    return lists;
}

/// All stages as slow as can be: each does only what another one waits for.
class LazyStages
{
  public:
    explicit LazyStages(const PipelineSchedule& schedule) : schedule_(schedule), done_(schedule.stages.size(), 0) {}

    void advance(std::int64_t stage, std::size_t to)
    {
        std::size_t& done = done_[static_cast<std::size_t>(stage)];
        for (; done < to; ++done)
        {
            const Action& action = schedule_.actions(stage)[done];
            if (!is_receive(action.kind)) { continue; }
            const PipelineMessage message = message_of(schedule_, stage, action);
            advance(message.from, place(message.from, message, Kind::send_activation, Kind::send_gradient) + 1);
        }
    }
    std::size_t done(std::int64_t stage) const { return done_[static_cast<std::size_t>(stage)]; }
    std::size_t place_of_receive(const PipelineMessage& message) const
    {
        return place(message.to, message, Kind::recv_activation, Kind::recv_gradient);
    }

  private:
    std::size_t place(std::int64_t stage, const PipelineMessage& message, Kind activation, Kind gradient) const
    {
        const std::vector<Action>& actions = schedule_.actions(stage);
        const auto found = std::find_if(actions.begin(), actions.end(),
                                        [&](const Action& action)
                                        {
                                            return (action.kind == activation || action.kind == gradient) &&
                                                   message_of(schedule_, stage, action) == message;
                                        });
        EXPECT_NE(found, actions.end());
        return static_cast<std::size_t>(found - actions.begin());
    }

    const PipelineSchedule& schedule_;
    std::vector<std::size_t> done_;
};

std::vector<PipelineSchedule> sent_schedules()
{
    std::vector<PipelineSchedule> all;
    for (const std::int64_t stages : {1, 2, 3, 4, 5})
    {
        for (const std::int64_t micro_batches : {1, 2, 4, 7, 12})
        {
            for (int kind = 0; kind < num_pipeline_kinds; ++kind)
            {
                for (const std::int64_t chunks : {2, 3})
                {
                    const auto which = static_cast<PipelineKind>(kind);
                    const bool interleaved = which == PipelineKind::interleaved;
                    if (interleaved ? micro_batches % stages != 0 : chunks != 2) { continue; }
                    all.push_back(make_schedule(which, stages, micro_batches, chunks));
                }
            }
        }
    }
    return all;
}

std::string send_case(const PipelineSchedule& schedule, std::int64_t stage)
{
    return fmt::format("{} stages {} micro-batches {} chunks {} stage {}", schedule.name, schedule.num_stages(),
                       schedule.num_micro_batches, schedule.num_chunks, stage);
}

/// Most sends that are not waited for, after an action.
std::size_t most_under_way(const PipelineSchedule& schedule, std::int64_t stage)
{
    const std::vector<Sends> lists = send_lists(schedule, stage);
    std::size_t now = 0, most = 0;
    for (std::size_t i = 0; i < schedule.actions(stage).size(); ++i)
    {
        now += is_send(schedule.actions(stage)[i].kind) ? 1 : 0;
        now -= lists[i].size();
        most = std::max(most, now);
    }
    return most;
}

}  // namespace

TEST(SendOrder, OneStageSendsNothing)
{
    for (const Sends& list : send_lists(make_single_stage_schedule(3), 0)) { EXPECT_TRUE(list.empty()); }
}

TEST(SendOrder, WorkedExample)
{
    const PipelineSchedule schedule = make_1f1b_schedule(2, 2);
    const std::vector<Sends> first = send_lists(schedule, 0), second = send_lists(schedule, 1);
    const auto place = [&](const Action& action)
    {
        const std::vector<Action>& actions = schedule.actions(0);
        return static_cast<std::size_t>(std::find(actions.begin(), actions.end(), action) - actions.begin());
    };
    EXPECT_EQ(first[place({Kind::recv_gradient, 0, 0})], (Sends{{Kind::send_activation, 0, 0}}));
    EXPECT_EQ(first[place({Kind::recv_gradient, 1, 0})], (Sends{{Kind::send_activation, 1, 0}}));
    EXPECT_TRUE(first.back().empty());
    EXPECT_EQ(second.back(), (Sends{{Kind::send_gradient, 0, 0}, {Kind::send_gradient, 1, 0}}));
}

TEST(SendOrder, StartsOverAfterTheEnd)
{
    const PipelineSchedule schedule = make_1f1b_schedule(2, 1);
    SendOrder order(schedule, 1);
    for (int step = 0; step < 2; ++step)
    {
        for (std::size_t i = 0; i < schedule.actions(1).size(); ++i) { EXPECT_TRUE(order.after().empty()); }
        EXPECT_EQ(order.finish().size(), 1U);
    }
}

TEST(SendOrder, ASendIsWaitedForOnceAndAsSoonAsTheSlowestStagesMustHaveReceivedIt)
{
    for (const PipelineSchedule& schedule : sent_schedules())
    {
        for (std::int64_t stage = 0; stage < schedule.num_stages(); ++stage)
        {
            SCOPED_TRACE(send_case(schedule, stage));
            const std::vector<Sends> lists = send_lists(schedule, stage);
            LazyStages stages(schedule);
            Sends under_way;
            for (std::size_t i = 0; i < schedule.actions(stage).size(); ++i)
            {
                const Action& action = schedule.actions(stage)[i];
                stages.advance(stage, i + 1);
                if (is_send(action.kind)) { under_way.push_back(action); }
                Sends received, rest;
                for (const Action& send : under_way)
                {
                    const PipelineMessage message = message_of(schedule, stage, send);
                    (stages.done(message.to) > stages.place_of_receive(message) ? received : rest).push_back(send);
                }
                ASSERT_EQ(lists[i], received) << "after " << action_text(action);
                under_way = rest;
            }
            EXPECT_EQ(lists.back(), under_way);
        }
    }
}

TEST(SendOrder, WhatIsUnderWayDoesNotGrowWithTheMicroBatches)
{
    for (const std::int64_t stages : {2, 3, 4, 8})
    {
        for (const PipelineKind kind :
             {PipelineKind::one_f_one_b, PipelineKind::interleaved, PipelineKind::zb_h1, PipelineKind::zbv})
        {
            const PipelineSchedule few = make_schedule(kind, stages, 6 * stages, 2), many = make_schedule(kind, stages, 12 * stages, 2);
            for (std::int64_t stage = 0; stage < stages; ++stage)
            {
                EXPECT_EQ(most_under_way(many, stage), most_under_way(few, stage)) << send_case(many, stage);
                EXPECT_LE(most_under_way(few, stage), static_cast<std::size_t>(5 * stages)) << send_case(few, stage);
            }
        }
    }
}
