#include "comm/metered_communicator.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "comm/thread_communicator.hpp"
#include "layout/collective_cost.hpp"
#include "support/buffer_view.hpp"

using namespace plimsoll;
using plimsoll::testing::view_of;

namespace
{

}  // namespace

TEST(MeteredCommunicator, CountsWhatARankSendsInItsGroups)
{
    ParallelLayout layout;
    layout.dp = 2;
    layout.pp = 2;
    layout.global_batch = 2;
    run_ranks(4,
              [&](Communicator& world)
              {
                  RankGroups groups = make_rank_groups(world, layout, 1);
                  CommunicationMeters meters(groups);
                  Stream stream;
                  std::vector<float> half(500, 1), all(1000, 1);
                  groups.dp->all_reduce(view_of(all), ReduceOp::sum, stream).wait(stream);
                  EXPECT_EQ(all[999], 2);
                  groups.dp->reduce_scatter(view_of(all), view_of(half), stream).wait(stream);
                  groups.dp->all_gather(view_of(half), view_of(all), stream).wait(stream);
                  if (groups.pp->rank() == 0) { groups.pp->send(view_of(half), 1, stream).wait(stream); }
                  else { groups.pp->recv(view_of(half), 0, stream).wait(stream); }
                  groups.tp->all_reduce(view_of(half), ReduceOp::sum, stream).wait(stream);  // alone: nothing is sent
                  const auto sent = meters.take();
                  EXPECT_EQ(sent.at("dp").calls, 3);
                  EXPECT_EQ(sent.at("dp").bytes, 4000 + 2000 + 2000);
                  EXPECT_GT(sent.at("dp").waited_seconds, 0);
                  EXPECT_EQ(sent.at("pp").calls, 1);
                  EXPECT_EQ(sent.at("pp").bytes, groups.pp->rank() == 0 ? 2000 : 0);
                  EXPECT_EQ(sent.count("tp"), 0U);
                  EXPECT_EQ(meters.take().at("dp").calls, 0) << "taken is taken";
              });
}

TEST(CollectiveCost, IsWhatAnOptimalAlgorithmSends)
{
    EXPECT_EQ(sent_bytes(CollectiveKind::all_reduce, 1000, 4), 1500);
    EXPECT_EQ(sent_bytes(CollectiveKind::reduce_scatter, 1000, 4), 750);
    EXPECT_EQ(sent_bytes(CollectiveKind::all_gather, 1000, 4), 750);
    EXPECT_EQ(sent_bytes(CollectiveKind::send, 1000, 4), 1000);
    EXPECT_EQ(sent_bytes(CollectiveKind::recv, 1000, 4), 0);
    EXPECT_EQ(sent_bytes(CollectiveKind::all_reduce, 1000, 1), 0);
}
