#include <gtest/gtest.h>

#include <vector>

#include "base/error.hpp"
#include "comm/communicator.hpp"
#include "support/buffer_view.hpp"

using namespace plimsoll;
using plimsoll::testing::view_of;

namespace
{

}  // namespace

TEST(SelfCommunicator, IsARealGroupOfOne)
{
    const auto comm = make_self_communicator("tp");
    EXPECT_EQ(comm->name(), "tp");
    EXPECT_EQ(comm->rank(), 0);
    EXPECT_EQ(comm->size(), 1);
    comm->barrier();
}

TEST(SelfCommunicator, CollectivesAreTheIdentity)
{
    const auto comm = make_self_communicator("dp");
    Stream stream;
    std::vector<float> input{1, 2, 3}, output(3, 0);
    comm->all_reduce(view_of(input), ReduceOp::sum, stream).synchronize();
    EXPECT_EQ(input, (std::vector<float>{1, 2, 3}));
    comm->reduce_scatter(view_of(input), view_of(output), stream).wait(stream);
    EXPECT_EQ(output, input);
    output.assign(3, 0);
    comm->all_gather(view_of(input), view_of(output), stream).wait(stream);
    EXPECT_EQ(output, input);
    comm->broadcast(view_of(output), 0, stream).synchronize();
    EXPECT_EQ(output, input);
}

TEST(SelfCommunicator, WorksInPlace)
{
    const auto comm = make_self_communicator("dp");
    Stream stream;
    std::vector<float> data{4, 5};
    comm->reduce_scatter(view_of(data), view_of(data), stream).synchronize();
    comm->all_gather(view_of(data), view_of(data), stream).synchronize();
    EXPECT_EQ(data, (std::vector<float>{4, 5}));
}

TEST(SelfCommunicator, RefusesUnequalPartsAndStrangeRoots)
{
    const auto comm = make_self_communicator("dp");
    Stream stream;
    std::vector<float> two(2), three(3);
    EXPECT_THROW(comm->reduce_scatter(view_of(three), view_of(two), stream), InternalError);
    EXPECT_THROW(comm->broadcast(view_of(two), 1, stream), InternalError);
}

TEST(Work, FinishesOnce)
{
    int calls = 0;
    Work work([&] { ++calls; });
    work.synchronize();
    work.synchronize();
    EXPECT_EQ(calls, 1);
}
