#include "engine/recorder.hpp"

#include <gtest/gtest.h>

#include <thread>

using namespace plimsoll;

TEST(StepRecorder, TellsNamedTensorsInTheOrderOfTheirBlocks)
{
    StepRecorder recorder;
    const ScopedRecording recording(recorder);
    set_recorded_phase(StepPhase::forward, 2);
    std::int64_t first = 0, second = 0;
    {
        const OpScope scope(PlanOp::mlp, 5);
        first = recorder.allocated(64);
        second = recorder.allocated(32);
        recorder.named(second, "act", MemoryUse::transient);
        recorder.named(first, "pre", MemoryUse::activations);  // named later, but it began first
    }
    set_recorded_phase(StepPhase::backward, 3);
    std::thread([&] { recorder.freed(first); }).join();
    recorder.freed(second);
    set_recorded_phase(StepPhase::start_up, -1);
    const std::vector<StepEvent> events = recorder.take();
    ASSERT_EQ(events.size(), 4U);
    EXPECT_EQ(event_text(events[0]), "alloc mlp.pre of layer 5, micro-batch 2 (64 B)");
    EXPECT_EQ(event_text(events[1]), "alloc mlp.act of layer 5, micro-batch 2 (32 B)");
    EXPECT_EQ(event_text(events[2]), "free mlp.pre of layer 5, micro-batch 2 (64 B)");
    EXPECT_EQ(event_text(events[3]), "free mlp.act of layer 5, micro-batch 2 (32 B)");
    EXPECT_EQ(events[0].category, MemoryUse::activations);
    EXPECT_EQ(events[3].phase, StepPhase::backward);
    EXPECT_TRUE(recorder.take().empty());
}

TEST(StepRecorder, UnnamedBlocksOfAnOperationAreItsWorkspace)
{
    StepRecorder recorder;
    const ScopedRecording recording(recorder);
    {
        const OpScope scope(PlanOp::attention, 1);
        const std::int64_t a = recorder.allocated(100);
        const std::int64_t b = recorder.allocated(10);
        recorder.freed(a);
        const std::int64_t c = recorder.allocated(50);
        recorder.freed(b);
        recorder.freed(c);
        const std::int64_t named = recorder.allocated(1000);
        recorder.named(named, "out", MemoryUse::activations);
    }
    {
        const OpScope scope(PlanOp::mlp, 1);  // none
    }
    const std::vector<StepEvent> events = recorder.take();
    ASSERT_EQ(events.size(), 2U);
    EXPECT_EQ(events[1].kind, EventKind::workspace);
    EXPECT_EQ(events[1].op, PlanOp::attention);
    EXPECT_EQ(events[1].bytes, 110);
}

TEST(StepRecorder, FollowsNoBlockOfBefore)
{
    StepRecorder recorder;
    const std::int64_t old = recorder.allocated(8);
    const std::int64_t started = recorder.started(CollectiveKind::send, GroupKind::pp, 8);
    recorder.take();
    recorder.freed(old);
    recorder.named(old, "x", MemoryUse::loss);
    recorder.waited(started);
    EXPECT_TRUE(recorder.take().empty());
}

TEST(StepRecorder, NumbersCollectives)
{
    StepRecorder recorder;
    for (int round = 0; round < 2; ++round)
    {
        const std::int64_t a = recorder.started(CollectiveKind::all_reduce, GroupKind::tp, 16);
        const std::int64_t b = recorder.started(CollectiveKind::send, GroupKind::pp, 32);
        recorder.waited(b);
        recorder.waited(a);
        const std::vector<StepEvent> events = recorder.take();
        ASSERT_EQ(events.size(), 4U);
        EXPECT_EQ(events[0].id, 0);
        EXPECT_EQ(events[2].id, 1);
        EXPECT_EQ(events[2].group, GroupKind::pp);
        EXPECT_EQ(events[3].bytes, 16);
    }
}

TEST(StepRecorder, IsOfOneThread)
{
    StepRecorder recorder;
    EXPECT_EQ(thread_recorder(), nullptr);
    const ScopedRecording recording(recorder);
    EXPECT_EQ(thread_recorder(), &recorder);
    std::thread([] { EXPECT_EQ(thread_recorder(), nullptr); }).join();
}
