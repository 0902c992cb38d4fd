// GoogleTest main of a job with several ranks: all run every test, rank 0 prints what any of them found.
// --largest-message=BYTES cuts messages as MPI's int counts would cut those of several gigabytes; --large-sums=messages uses
// messages also where ranks share memory.

#include <gtest/gtest.h>

#include <cstdio>
#include <memory>
#include <string>

#include "base/run_tool.hpp"
#include "comm/exchange.hpp"
#include "comm_mpi/run_with_mpi.hpp"
#include "support/mpi_world.hpp"

namespace plimsoll::testing
{

namespace
{

Communicator* world_of_job = nullptr;

/// Collects the failures of a test from all ranks.
class RankListener final : public ::testing::EmptyTestEventListener
{
  public:
    int num_failed() const { return num_failed_; }

    void OnTestPartResult(const ::testing::TestPartResult& result) override
    {
        if (!result.failed()) { return; }
        mine_ += std::string(result.file_name() == nullptr ? "unknown file" : result.file_name()) + ":" +
                 std::to_string(result.line_number()) + ": " + result.message() + "\n";
    }

    void OnTestEnd(const ::testing::TestInfo& test) override
    {
        const std::vector<std::string> texts = all_gather_bytes(*world_of_job, mine_);
        mine_.clear();
        bool failed = false;
        for (std::size_t rank = 0; rank < texts.size(); ++rank)
        {
            failed = failed || !texts[rank].empty();
            if (world_of_job->rank() == 0 && !texts[rank].empty())
            {
                std::printf("rank %zu, %s.%s\n%s", rank, test.test_suite_name(), test.name(), texts[rank].c_str());
            }
        }
        if (failed) { ++num_failed_; }
    }

  private:
    std::string mine_;
    int num_failed_ = 0;
};

}  // namespace

Communicator& mpi_world() { return *world_of_job; }

}  // namespace plimsoll::testing

int main(int argc, char** argv)
{
    using namespace plimsoll;
    ::testing::InitGoogleTest(&argc, argv);
    ToolSpec tool;
    tool.name = "mpi-test";
    Command command;
    command.run_files = RunFiles::refused;
    MpiOptions options;
    options.watchdog_s = 20;
    std::string large_sums = "shared-memory";
    command.declare = [&](OptionSet& set)
    {
        set.add_count("", "largest-message", options.largest_message, "bytes").range(1);
        set.add_choice("", "large-sums", large_sums, {"shared-memory", "messages"}, "of a group on one node");
    };
    command.run = [&](const Invocation&)
    {
        if (large_sums == "messages") { options.large_sums = LargeSums::messages; }
        return run_with_mpi(
            [](Communicator& world)
            {
                plimsoll::testing::world_of_job = &world;
                auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
                if (world.rank() != 0) { delete listeners.Release(listeners.default_result_printer()); }
                auto* listener = new plimsoll::testing::RankListener;  // GoogleTest deletes it
                listeners.Append(listener);
                int failed = RUN_ALL_TESTS();
                failed += listener->num_failed();
                const bool none = ::testing::UnitTest::GetInstance()->test_to_run_count() == 0;
                return failed == 0 && !none ? ExitCode::done : ExitCode::failed;
            },
            options);
    };
    tool.commands = {command};
    return run_tool(argc, argv, tool);
}
