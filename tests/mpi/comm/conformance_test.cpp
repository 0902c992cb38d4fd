#include "support/comm_conformance.hpp"

#include "comm/delayed_communicator.hpp"
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
    EXPECT_LE(world.scratch_bytes(), std::int64_t(64) << 20);
}
