#include "support/comm_conformance.hpp"

#include <tuple>

#include "comm/delayed_communicator.hpp"
#include "comm/thread_communicator.hpp"
#include "support/test_watchdog.hpp"

using namespace plimsoll;
using namespace plimsoll::testing;

namespace
{

enum class BackEnd
{
    self,
    threads,
    delayed
};

struct Setting
{
    BackEnd back_end;
    std::int64_t ranks;
    const ConformanceCase* test;
};

void run(const Setting& setting)
{
    if (setting.back_end == BackEnd::self)
    {
        setting.test->body(*make_self_communicator("world"));
        return;
    }
    RankOptions options;
    options.watchdog_s = test_watchdog_s;
    run_ranks(
        setting.ranks,
        [&](Communicator& world)
        {
            if (setting.back_end == BackEnd::threads) { setting.test->body(world); }
            else { setting.test->body(*make_delayed_communicator(world)); }
        },
        options);
}

std::vector<Setting> settings()
{
    std::vector<Setting> all;
    for (const ConformanceCase& test : conformance_cases())
    {
        if (test.least_ranks == 1) { all.push_back({BackEnd::self, 1, &test}); }
        for (const std::int64_t ranks : {1, 2, 3, 4, 6, 8})
        {
            if (ranks < test.least_ranks) { continue; }
            all.push_back({BackEnd::threads, ranks, &test});
            if (ranks <= 4) { all.push_back({BackEnd::delayed, ranks, &test}); }
        }
    }
    return all;
}

std::string name_of(const ::testing::TestParamInfo<Setting>& info)
{
    const char* back_ends[] = {"self", "threads", "delayed"};
    return std::string(info.param.test->name) + "_" + back_ends[static_cast<int>(info.param.back_end)] + "_" +
           std::to_string(info.param.ranks);
}

class Conformance : public ::testing::TestWithParam<Setting>
{
};

TEST_P(Conformance, Holds) { run(GetParam()); }

INSTANTIATE_TEST_SUITE_P(Communicators, Conformance, ::testing::ValuesIn(settings()), name_of);

}  // namespace
