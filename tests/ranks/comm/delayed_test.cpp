// Programs with a fault that an immediate back end hides, and that the delayed one finds.

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.hpp"
#include "comm/delayed_communicator.hpp"
#include "comm/thread_communicator.hpp"
#include "support/comm_conformance.hpp"

using namespace plimsoll;
using namespace plimsoll::testing;

namespace
{

std::string failure_of(const std::function<void(Communicator&, Stream&)>& body)
{
    try
    {
        run_ranks(2,
                  [&](Communicator& world)
                  {
                      Stream stream;
                      const auto delayed = make_delayed_communicator(world);
                      body(*delayed, stream);
                  });
    }
    catch (const std::exception& error)
    {
        return error.what();
    }
    return "";
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST(Delayed, AResultReadBeforeItsWaitIsNan)
{
    const std::string text = failure_of(
        [](Communicator& world, Stream& stream)
        {
            std::vector<float> data(100, 1), parts(50), all(200), message(3, 1);
            Work reduce = world.all_reduce(view_of(data), ReduceOp::sum, stream);
            EXPECT_TRUE(std::isnan(data[0]) && std::isnan(data[99]));
            reduce.wait(stream);
            EXPECT_EQ(data[99], 2);

            Work scatter = world.reduce_scatter(view_of(data), view_of(parts), stream);
            world.barrier();
            EXPECT_TRUE(std::isnan(parts[0]) && std::isnan(parts[49]));
            EXPECT_EQ(data[0], 2);
            scatter.wait(stream);
            EXPECT_EQ(parts[49], 4);

            Work gather = world.all_gather(view_of(data), view_of(all), stream);
            world.barrier();
            EXPECT_TRUE(std::isnan(all[0]) && std::isnan(all[199]));
            gather.wait(stream);
            EXPECT_EQ(all[199], 2);

            Work transfer = world.rank() == 0 ? world.send(view_of(message), 1, stream) : world.recv(view_of(message), 0, stream);
            world.barrier();
            EXPECT_EQ(std::isnan(message[2]), world.rank() == 1);
            transfer.wait(stream);
            EXPECT_EQ(message[2], 1);

            Work spread = world.broadcast(view_of(message), 1, stream);
            world.barrier();
            EXPECT_EQ(std::isnan(message[0]), world.rank() == 0);
            spread.wait(stream);
            EXPECT_EQ(message[0], 1);
        });
    EXPECT_EQ(text, "");
}

TEST(Delayed, PartsInPlaceStayReadable)
{
    const std::string text = failure_of(
        [](Communicator& world, Stream& stream)
        {
            std::vector<float> all(20, 7);
            const auto mine = static_cast<std::size_t>(10 * world.rank()), others = static_cast<std::size_t>(10 - 10 * world.rank());
            Work gather = world.all_gather(view_of(all).slice(10 * world.rank(), 10), view_of(all), stream);
            EXPECT_EQ(all[mine], 7);
            EXPECT_TRUE(std::isnan(all[others]));
            gather.wait(stream);
            EXPECT_EQ(all[others], 7);
        });
    EXPECT_EQ(text, "");
}

TEST(Delayed, FindsAMissingWait)
{
    const std::string text = failure_of(
        [](Communicator& world, Stream& stream)
        {
            std::vector<float> data(100, 1);
            world.all_reduce(view_of(data), ReduceOp::sum, stream);
        });
    EXPECT_TRUE(has(text, "did not wait for its all_reduce of 'world' #1")) << text;
}

TEST(Delayed, FindsAnInputThatIsUsedAgainTooEarly)
{
    const std::string text = failure_of(
        [](Communicator& world, Stream& stream)
        {
            std::vector<float> message(100, 1);
            if (world.rank() == 1) { world.recv(view_of(message), 0, stream).wait(stream); }
            else
            {
                Work sent = world.send(view_of(message), 1, stream);
                message[50] = 2;
                sent.wait(stream);
            }
        });
    EXPECT_TRUE(has(text, "an input of send of 'world' changed before it was waited for")) << text;
}

TEST(Delayed, FindsAResultBufferThatIsWrittenTooEarly)
{
    const std::string text = failure_of(
        [](Communicator& world, Stream& stream)
        {
            std::vector<float> data(100, 1);
            Work reduced = world.all_reduce(view_of(data), ReduceOp::sum, stream);
            data[3] += 1;
            data[4] = 0;
            reduced.wait(stream);
        });
    EXPECT_TRUE(has(text, "the result buffer of all_reduce of 'world' was written to before it was waited for")) << text;
}

TEST(Delayed, GroupsOfItAreDelayedToo)
{
    const std::string text = failure_of(
        [](Communicator& world, Stream& stream)
        {
            const auto group = world.subgroup("tp", {0, 1});
            std::vector<double> data(3, 1);
            Work reduced = group->all_reduce(view_of(data), ReduceOp::sum, stream);
            EXPECT_TRUE(std::isnan(data[0]));
            reduced.wait(stream);
            EXPECT_EQ(data[0], 2);
        });
    EXPECT_EQ(text, "");
}
