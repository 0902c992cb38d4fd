#include "comm/watchdog.hpp"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <functional>
#include <thread>

#include "base/error.hpp"
#include "support/shared_slots.hpp"

using namespace plimsoll;
using namespace plimsoll::testing;

namespace
{

/// Polls until the watchdog bites; its text, and the seconds it took.
struct Bite
{
    std::string text;
    double seconds = 0;
};

Bite wait_for_bite(Watchdog& watchdog, double longest, const std::function<void()>& meanwhile = [] {})
{
    Bite bite;
    const auto start = std::chrono::steady_clock::now();
    const auto passed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
    try
    {
        while (passed() < longest)
        {
            watchdog.check();
            meanwhile();
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        }
    }
    catch (const CommError& error)
    {
        bite.text = error.text();
    }
    bite.seconds = passed();
    return bite;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST(Watchdog, BitesAfterItsTimeAndNamesSuspectsFirst)
{
    const auto board = RankBoard::in_memory(3);
    const auto own = board->activity(0), victim = board->activity(1), suspect = board->activity(2);
    victim->begin("all_reduce", -1, "tp", 4);
    suspect->set_step(7);
    suspect->note("forward of micro-batch", 2);
    Watchdog watchdog(board, "tp", {0, 1, 2}, 0, 0.4);
    watchdog.start("all_reduce", -1, 4);
    const Bite bite = wait_for_bite(watchdog, 10);
    EXPECT_GE(bite.seconds, 0.39);
    EXPECT_LT(bite.seconds, 5);
    EXPECT_TRUE(has(bite.text, "rank 0 waits in all_reduce of 'tp' #4 and no rank of the group made progress for 0.")) << bite.text;
    EXPECT_TRUE(has(bite.text, "s (rank 2: step 7, after forward of micro-batch 2; rank 1: in all_reduce of 'tp' #4).")) << bite.text;
}

TEST(Watchdog, EachOperationThatFinishesBuysTime)
{
    const auto board = RankBoard::in_memory(2);
    const auto own = board->activity(0), other = board->activity(1);
    Watchdog watchdog(board, "tp", {0, 1}, 0, 0.5);
    watchdog.start("barrier", -1, 1);
    EXPECT_EQ(wait_for_bite(watchdog, 1.5, [&] { other->tick(); }).text, "");
    EXPECT_NE(wait_for_bite(watchdog, 10).text, "");
}

TEST(Watchdog, RanksOutsideTheGroupDoNotCount)
{
    const auto board = RankBoard::in_memory(3);
    const auto own = board->activity(0), other = board->activity(1), stranger = board->activity(2);
    Watchdog watchdog(board, "tp", {0, 1}, 0, 0.4);
    watchdog.start("barrier", -1, 1);
    EXPECT_NE(wait_for_bite(watchdog, 5, [&] { stranger->tick(); }).text, "");
}

TEST(Watchdog, RanksOutsideCountWhereTheGroupWaitsForThem)
{
    const auto board = RankBoard::in_memory(3);
    const auto own = board->activity(0), other = board->activity(1), stranger = board->activity(2);
    other->begin("recv from", 0, "pp", 1);
    Watchdog watchdog(board, "tp", {0, 1}, 0, 0.4);
    watchdog.start("barrier", -1, 1);
    EXPECT_EQ(wait_for_bite(watchdog, 1.5, [&] { stranger->tick(); }).text, "");
    EXPECT_NE(wait_for_bite(watchdog, 10).text, "");
}

TEST(Watchdog, MembersThatCannotBeReadLeaveTheOwnWaitingTime)
{
    auto slot = std::make_shared<RankSlot>();
    const auto board = std::make_shared<RankBoard>(std::vector<RankSlot*>{slot.get(), nullptr}, slot);
    const auto own = board->activity(0);
    Watchdog watchdog(board, "dp", {0, 1}, 0, 0.4);
    watchdog.start("barrier", -1, 1);
    const Bite bite = wait_for_bite(watchdog, 10);
    EXPECT_GE(bite.seconds, 0.39);
    EXPECT_TRUE(has(bite.text, "(rank 1: not readable from here)")) << bite.text;
}

TEST(Watchdog, AMemberThatEndedIsNamed)
{
    const auto board = RankBoard::in_memory(2);
    const auto own = board->activity(0), other = board->activity(1);
    other->note("report");
    other->set_state(RankState::done);
    Watchdog watchdog(board, "dp", {0, 1}, 0, 60);
    watchdog.start("recv from", 1, 3);
    const Bite bite = wait_for_bite(watchdog, 10);
    EXPECT_LT(bite.seconds, 5);
    EXPECT_TRUE(has(bite.text, "rank 1 ended its work (after report) while rank 0 waits in recv from 1 of 'dp' #3")) << bite.text;
}

TEST(Watchdog, AtTheEndOfAllThoseThatEndedAreFine)
{
    const auto board = RankBoard::in_memory(3);
    const auto own = board->activity(0), ended = board->activity(1), working = board->activity(2);
    ended->set_state(RankState::done);
    Watchdog watchdog(board, "world", {0, 1, 2}, 0, 2, EndedMembers::fine);
    watchdog.start("end of the job", -1, 0);
    EXPECT_EQ(wait_for_bite(watchdog, 1.5).text, "");
    const Bite bite = wait_for_bite(watchdog, 10);
    EXPECT_TRUE(has(bite.text, "rank 0 waits in end of the job of 'world' and no rank of the group made progress")) << bite.text;
}

TEST(Watchdog, AKilledProcessIsNamedWithinTwoSeconds)
{
    const SharedSlots slots(2);
    const auto board = std::make_shared<RankBoard>(slots.pointers(), nullptr);
    const auto own = board->activity(0);
    int ready[2];
    ASSERT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0)
    {
        const auto activity = board->activity(1);
        activity->set_step(5);
        activity->note("backward of micro-batch", 1);
        if (::write(ready[1], "x", 1) != 1) { ::_exit(1); }
        for (;;) { ::pause(); }
    }
    char byte = 0;
    ASSERT_EQ(::read(ready[0], &byte, 1), 1);
    Watchdog watchdog(board, "dp", {0, 1}, 0, 60);
    watchdog.start("all_reduce", -1, 8);
    EXPECT_EQ(wait_for_bite(watchdog, 1.2).text, "");
    ::kill(child, SIGKILL);
    const Bite bite = wait_for_bite(watchdog, 10);
    EXPECT_LT(bite.seconds, 5);
    EXPECT_TRUE(has(bite.text, "rank 1 is dead (process " + std::to_string(child))) << bite.text;
    EXPECT_TRUE(has(bite.text, "is gone; step 5, after backward of micro-batch 1) while rank 0 waits in all_reduce of 'dp' #8")) << bite.text;
    ::waitpid(child, nullptr, 0);
    ::close(ready[0]);
    ::close(ready[1]);
}

TEST(Watchdog, RefusesGroupsThatDoNotFit)
{
    const auto board = RankBoard::in_memory(2);
    EXPECT_THROW(Watchdog(board, "dp", {0, 1}, 0, 0), InternalError);
    EXPECT_THROW(Watchdog(board, "dp", {0, 2}, 0, 1), InternalError);
    EXPECT_THROW(Watchdog(board, "dp", {1}, 0, 1), InternalError);
}
