// A rank that fails, leaves, hangs or forgets: what the others get, and what the caller is told.

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/error.hpp"
#include "comm/thread_communicator.hpp"
#include "support/comm_conformance.hpp"
#include "support/expect_error.hpp"
#include "support/temp_dir.hpp"
#include "support/test_watchdog.hpp"

using namespace plimsoll;
using namespace plimsoll::testing;

namespace
{

constexpr double short_watchdog_s = 1.5;

RankOptions options_with(double watchdog_s)
{
    RankOptions options;
    options.watchdog_s = watchdog_s;
    return options;
}

double seconds_of(const std::function<void()>& body)
{
    const auto start = std::chrono::steady_clock::now();
    body();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// The text of the error that run_ranks throws.
std::string failure_of(std::int64_t n, const std::function<void(Communicator&)>& body, double watchdog_s = test_watchdog_s)
{
    try
    {
        run_ranks(n, body, options_with(watchdog_s));
    }
    catch (const std::exception& error)
    {
        return error.what();
    }
    return "";
}

bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST(RunRanks, GivesEachRankItsNumber)
{
    for (const std::int64_t n : {1, 2, 3, 8})
    {
        std::atomic<std::int64_t> sum{0};
        run_ranks(n,
                  [&](Communicator& world)
                  {
                      EXPECT_EQ(world.size(), n);
                      EXPECT_EQ(world.name(), "world");
                      sum += world.rank();
                  });
        EXPECT_EQ(sum, n * (n - 1) / 2);
    }
}

TEST(RunRanks, ABarrierHoldsAllBack)
{
    std::atomic<int> arrived{0};
    run_ranks(6,
              [&](Communicator& world)
              {
                  for (int round = 1; round <= 50; ++round)
                  {
                      ++arrived;
                      world.barrier();
                      EXPECT_GE(arrived, 6 * round);
                      world.barrier();
                  }
              });
}

TEST(FailingRank, IsNamedWithStepAndOperationAndKeepsItsType)
{
    const double seconds = seconds_of(
        []
        {
            expect_error<NumericError>(
                []
                {
                    run_ranks(4,
                              [](Communicator& world)
                              {
                                  world.activity().set_step(7);
                                  const auto group = world.subgroup("tp", {0, 1, 2, 3});
                                  Stream stream;
                                  std::vector<float> data(10);
                                  for (int i = 0; i < 31; ++i)
                                  {
                                      group->all_reduce(view_of(data), ReduceOp::sum, stream).wait(stream);
                                  }
                                  if (world.rank() == 2) { throw NumericError("loss is nan"); }
                                  world.barrier();
                              });
                },
                "rank 2 (step 7, after all_reduce of 'tp' #31): loss is nan");
        });
    EXPECT_LT(seconds, 10);
}

TEST(FailingRank, EndsOthersInEveryKindOfWait)
{
    using Body = void (*)(Communicator&, std::vector<float>&, Stream&);
    const std::vector<Body> waits{
        [](Communicator& world, std::vector<float>& data, Stream& stream)
        { world.all_reduce(view_of(data), ReduceOp::sum, stream).wait(stream); },
        [](Communicator& world, std::vector<float>& data, Stream& stream)
        { world.reduce_scatter(view_of(data), view_of(data).slice(0, 100), stream).wait(stream); },
        [](Communicator& world, std::vector<float>& data, Stream& stream)
        { world.all_gather(view_of(data).slice(0, 100), view_of(data), stream).wait(stream); },
        [](Communicator& world, std::vector<float>& data, Stream& stream)
        { world.broadcast(view_of(data), 2, stream).wait(stream); },
        [](Communicator& world, std::vector<float>& data, Stream& stream)
        { world.send(view_of(data), 2, stream).wait(stream); },
        [](Communicator& world, std::vector<float>& data, Stream& stream)
        { world.recv(view_of(data), 2, stream).wait(stream); },
        [](Communicator& world, std::vector<float>&, Stream&) { world.barrier(); },
    };
    for (const Body wait : waits)
    {
        std::atomic<int> num_ended{0};
        const std::string text = failure_of(3,
                                            [&](Communicator& world)
                                            {
                                                Stream stream;
                                                std::vector<float> data(300);
                                                if (world.rank() == 2) { throw IoError("disk full"); }
                                                try
                                                {
                                                    wait(world, data, stream);
                                                }
                                                catch (const CommError& error)
                                                {
                                                    EXPECT_EQ(error.text(), "stopped because rank 2 failed");
                                                    ++num_ended;
                                                    throw;
                                                }
                                            });
        EXPECT_EQ(text, "rank 2 (before its first operation): disk full");
        EXPECT_EQ(num_ended, 2);
    }
}

TEST(FailingRank, EndsOthersInTheNextCallToo)
{
    const std::string text = failure_of(2,
                                        [](Communicator& world)
                                        {
                                            if (world.rank() == 1) { throw IoError("disk full"); }
                                            std::this_thread::sleep_for(std::chrono::milliseconds(100));
                                            world.progress();
                                            EXPECT_THROW(world.barrier(), CommError);
                                            EXPECT_THROW(world.subgroup("alone", {0}), CommError);
                                        });
    EXPECT_EQ(text, "rank 1 (before its first operation): disk full");
}

TEST(FailingRank, TakesItsBuffersBackWhileOthersRead)
{
    // Large enough to be in the middle of it; address and thread sanitizers watch.
    for (int round = 0; round < 10; ++round)
    {
        const std::string text = failure_of(4,
                                            [&](Communicator& world)
                                            {
                                                Stream stream;
                                                std::vector<float> data(2000000, 1);
                                                Work work = world.all_reduce(view_of(data), ReduceOp::sum, stream);
                                                if (world.rank() == round % 4) { throw IoError("disk full"); }
                                                work.wait(stream);
                                                world.barrier();
                                            });
        EXPECT_TRUE(says(text, "disk full")) << text;
    }
}

TEST(FailingRank, AForeignExceptionStaysWhatItIs)
{
    EXPECT_THROW(run_ranks(2,
                           [](Communicator& world)
                           {
                               if (world.rank() == 1) { throw std::bad_alloc(); }
                               world.barrier();
                           }),
                 std::bad_alloc);
}

TEST(LeavingRank, EndsThoseThatWaitForIt)
{
    std::string text;
    const double seconds = seconds_of([&] { text = failure_of(3,
                                                              [](Communicator& world)
                                                              {
                                                                  if (world.rank() == 1) { return; }
                                                                  world.barrier();
                                                              }); });
    EXPECT_LT(seconds, 10);
    EXPECT_TRUE(says(text, "rank 1 ended its work (before its first operation) while rank ")) << text;
    EXPECT_TRUE(says(text, "waits in barrier of 'world' #1")) << text;
}

TEST(Watchdog, NamesGroupOperationNumberWaiterAndWhatTheOthersDid)
{
    std::string text;
    const double seconds =
        seconds_of([&] { text = failure_of(
                             3,
                             [](Communicator& world)
                             {
                                 world.activity().set_step(9);
                                 const auto group = world.subgroup("dp", {0, 1, 2});
                                 group->barrier();
                                 world.activity().note("backward of micro-batch", world.rank());
                                 Stream stream;
                                 std::vector<float> data(5);
                                 if (world.rank() == 1) { group->recv(view_of(data), 0, stream).wait(stream); }
                                 group->all_reduce(view_of(data), ReduceOp::sum, stream).wait(stream);
                             },
                             short_watchdog_s); });
    EXPECT_LT(seconds, short_watchdog_s + 10);
    EXPECT_TRUE(says(text, "no rank of the group made progress for")) << text;
    EXPECT_TRUE(says(text, "of 'dp' #")) << text;
    EXPECT_TRUE(says(text, "rank 1: step 9, in recv from 0 of 'dp' #1") || says(text, "rank 1 waits in recv from 0 of 'dp' #1")) << text;
}

TEST(Watchdog, IsPatientWithARankThatWorks)
{
    run_ranks(
        2,
        [](Communicator& world)
        {
            if (world.rank() == 1)
            {
                for (int i = 0; i < 20; ++i)
                {
                    std::this_thread::sleep_for(std::chrono::milliseconds(150));
                    world.activity().note("forward of micro-batch", i);
                }
            }
            world.barrier();
        },
        options_with(short_watchdog_s));
}

TEST(Watchdog, IsPatientWhereTheOneWaitedForWaitsForAWorkingThird)
{
    run_ranks(
        3,
        [](Communicator& world)
        {
            const auto pair = world.rank() < 2 ? world.subgroup("pair", {0, 1}) : nullptr;
            Stream stream;
            std::vector<float> data(1);
            if (world.rank() == 2)
            {
                for (int i = 0; i < 20; ++i)
                {
                    std::this_thread::sleep_for(std::chrono::milliseconds(150));
                    world.activity().note("save block", i);
                }
                world.send(view_of(data), 1, stream).wait(stream);
            }
            if (world.rank() == 1) { world.recv(view_of(data), 2, stream).wait(stream); }
            if (pair) { pair->barrier(); }
        },
        options_with(short_watchdog_s));
}

TEST(Disagreement, IsToldWithBothCalls)
{
    const std::string text = failure_of(2,
                                        [](Communicator& world)
                                        {
                                            Stream stream;
                                            std::vector<float> data(world.rank() == 0 ? 10 : 12);
                                            world.all_reduce(view_of(data), ReduceOp::sum, stream).wait(stream);
                                        });
    EXPECT_TRUE(says(text, "ranks disagree about operation #1 of 'world': rank ")) << text;
    EXPECT_TRUE(says(text, "all_reduce of 10 f32 (sum)")) << text;
    EXPECT_TRUE(says(text, "all_reduce of 12 f32 (sum)")) << text;
}

TEST(Disagreement, AMessageOfAnotherLengthIsRefused)
{
    const std::string text = failure_of(2,
                                        [](Communicator& world)
                                        {
                                            Stream stream;
                                            std::vector<float> data(world.rank() == 0 ? 10 : 12);
                                            if (world.rank() == 0) { world.send(view_of(data), 1, stream).wait(stream); }
                                            else { world.recv(view_of(data), 0, stream).wait(stream); }
                                        });
    EXPECT_TRUE(says(text, "message #1 of 'world' has 10 f32 from rank 0, but 12 f32 are expected")) << text;
}

TEST(MissingWait, IsAnErrorOfTheNextCall)
{
    const std::string text = failure_of(2,
                                        [](Communicator& world)
                                        {
                                            Stream stream;
                                            std::vector<float> data(10);
                                            world.all_reduce(view_of(data), ReduceOp::sum, stream);
                                            EXPECT_EQ(data[0], 0);
                                            world.barrier();
                                        });
    EXPECT_TRUE(says(text, "did not wait for its all_reduce of 'world' #1")) << text;
}

TEST(MissingWait, IsAnErrorOfTheLastCallToo)
{
    const std::string text = failure_of(1,
                                        [](Communicator& world)
                                        {
                                            Stream stream;
                                            std::vector<float> data(10);
                                            world.all_reduce(view_of(data), ReduceOp::sum, stream);
                                        });
    EXPECT_TRUE(says(text, "rank 0 did not wait for its all_reduce of 'world' #1")) << text;
}

TEST(Groups, NamesMustAgree)
{
    const std::string text = failure_of(2, [](Communicator& world) { world.subgroup(world.rank() == 0 ? "a" : "b", {0, 1}); });
    EXPECT_TRUE(says(text, "ranks disagree about a group")) << text;
}

TEST(Groups, OnlyMembersMayMakeThem)
{
    run_ranks(2,
              [](Communicator& world)
              {
                  EXPECT_THROW(world.subgroup("other", {1 - world.rank()}), InternalError);
                  EXPECT_THROW(world.subgroup("strange", {world.rank(), 2}), InternalError);
              });
}

TEST(StatusFiles, StayWhenTheRanksHaveEnded)
{
    const TempDir directory;
    RankOptions options;
    options.status_directory = directory.path() + "/ranks";
    options.board = RankBoard::in_memory(2);
    EXPECT_THROW(run_ranks(
                     2,
                     [&](Communicator& world)
                     {
                         world.activity().set_step(4);
                         world.activity().note("forward of micro-batch", 1);
                         world.barrier();
                         if (world.rank() == 1)
                         {
                             while (options.board->state(0) != RankState::done) { std::this_thread::yield(); }
                             world.activity().note("backward of micro-batch", 1);
                             throw IoError("disk full");
                         }
                     },
                     options),
                 IoError);
    const RankRecord first = read_rank_status(rank_status_path(options.status_directory, 0));
    const RankRecord second = read_rank_status(rank_status_path(options.status_directory, 1));
    EXPECT_EQ(first.state, RankState::done);
    EXPECT_EQ(describe(first), "step 4, after barrier of 'world' #1");
    EXPECT_EQ(second.state, RankState::failed);
    EXPECT_EQ(second.rank, 1);
    EXPECT_EQ(describe(second), "step 4, after backward of micro-batch 1");
}
