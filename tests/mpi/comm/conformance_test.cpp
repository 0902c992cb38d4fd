#include "support/comm_conformance.hpp"

#include "comm/delayed_communicator.hpp"
#include "layout/collective_cost.hpp"
#include "support/mpi_world.hpp"

using namespace plimsoll;
using namespace plimsoll::testing;

namespace
{



std::string name_of(const ::testing::TestParamInfo<ConformanceCase>& info) { return info.param.name; }

class MpiConformance : public ::testing::TestWithParam<ConformanceCase>
{
};

TEST_P(MpiConformance, Holds)
{
    ASSERT_GE(mpi_world().size(), GetParam().least_ranks);
    GetParam().body(mpi_world());
}

TEST_P(MpiConformance, HoldsDelayed) { GetParam().body(*make_delayed_communicator(mpi_world())); }

INSTANTIATE_TEST_SUITE_P(Communicators, MpiConformance, ::testing::ValuesIn(conformance_cases()), name_of);

}  // namespace

TEST(MpiWorld, SeesTheOtherRanksOfTheMachine)
{
    Communicator& world = mpi_world();
    EXPECT_GE(world.size(), 2);
    EXPECT_EQ(world.name(), "world");
    EXPECT_LE(world.scratch_bytes(), collective_scratch_bytes(world.size()));
}

TEST(MpiWorld, KeepsAsMuchScratchAsTheMemoryPlanCounts)
{
    Stream stream;
    const auto group = mpi_world().subgroup("group", all_ranks(mpi_world()));
    const std::int64_t size = group->size();
    std::vector<float> little(static_cast<std::size_t>(shared_least_bytes / 4 - 1), 1), much(1000000);
    std::vector<float> all(much.size() * static_cast<std::size_t>(size));
    group->all_reduce(view_of(little), ReduceOp::sum, stream).wait(stream);
    group->all_gather(view_of(much), view_of(all), stream).wait(stream);
    group->broadcast(view_of(much), 0, stream).wait(stream);
    EXPECT_EQ(group->scratch_bytes(), 0) << "small sums and copies take none";
    std::vector<float> part(1000), parts(static_cast<std::size_t>(1000 * size));
    group->reduce_scatter(view_of(parts), view_of(part), stream).wait(stream);
    EXPECT_EQ(group->scratch_bytes(), collective_scratch_bytes(size));
    group->all_reduce(view_of(much), ReduceOp::sum, stream).wait(stream);
    EXPECT_EQ(group->scratch_bytes(), collective_scratch_bytes(size));
    // Several at once take turns with it, whoever is waited for first.
    std::vector<std::vector<float>> many(5, std::vector<float>(300000, 1));
    std::vector<Work> works;
    for (std::vector<float>& data : many) { works.push_back(group->all_reduce(view_of(data), ReduceOp::sum, stream)); }
    for (std::size_t i = works.size(); i-- > 0;) { works[i].wait(stream); }
    for (const std::vector<float>& data : many) { EXPECT_EQ(data[299999], static_cast<float>(size)); }
    EXPECT_EQ(group->scratch_bytes(), collective_scratch_bytes(size));
}
