// A job whose ranks end in the way that the first argument names; for test_job_end.py.
//
// mpi_job_probe WAY [STATUS_DIRECTORY]

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/run_tool.hpp"
#include "comm_mpi/run_with_mpi.hpp"
#include "comm/rank_activity.hpp"
#include "support/buffer_view.hpp"

using namespace plimsoll;
using plimsoll::testing::view_of;

namespace
{

constexpr std::int64_t culprit = 1;

/// What a training step looks like from outside.
void work(Communicator& world)
{
    Stream stream;
    std::vector<float> data(1000);
    world.activity().set_step(7);
    world.activity().note("forward of micro-batch", 2);
    world.all_reduce(view_of(data), ReduceOp::sum, stream).wait(stream);
}

ExitCode wait_for_all(Communicator& world)
{
    world.barrier();
    return ExitCode::done;
}

[[noreturn]] void sleep_forever()
{
    for (;;) { ::pause(); }
}

using Way = std::function<ExitCode(Communicator&)>;

const std::map<std::string, Way>& ways()
{
    static const std::map<std::string, Way> all{
        {"done", [](Communicator&) { return ExitCode::done; }},
        {"interrupted", [](Communicator&) { return ExitCode::interrupted; }},
        {"one-throws", [](Communicator& world)
         {
             if (world.rank() == culprit) { throw NumericError("loss is nan"); }
             return wait_for_all(world);
         }},
        {"one-throws-in-the-middle", [](Communicator& world)
         {
             Stream stream;
             std::vector<float> data(8 << 20, 1);
             Work reduced = world.all_reduce(view_of(data), ReduceOp::sum, stream);
             if (world.rank() == culprit) { throw NumericError("loss is nan"); }
             reduced.wait(stream);
             return ExitCode::done;
         }},
        {"one-throws-and-one-is-late", [](Communicator& world)
         {
             Stream stream;
             if (world.rank() == 0) { ::usleep(1500000); }
             std::vector<float> data(8 << 20, 1);
             Work reduced = world.all_reduce(view_of(data), ReduceOp::sum, stream);
             if (world.rank() == culprit) { throw NumericError("loss is nan"); }
             reduced.wait(stream);
             return ExitCode::done;
         }},
        {"one-throws-at-the-end", [](Communicator& world)
         {
             if (world.rank() == culprit) { throw IoError("disk full"); }
             return ExitCode::done;
         }},
        {"all-throw-alike", [](Communicator&) -> ExitCode { throw ConfigError("20 heads cannot be split\nover tp 8"); }},
        {"all-throw", [](Communicator& world) -> ExitCode { throw IoError("disk " + std::to_string(world.rank()) + " full"); }},
        {"one-hangs", [](Communicator& world)
         {
             if (world.rank() == culprit) { sleep_forever(); }
             return wait_for_all(world);
         }},
        {"one-hangs-while-others-end", [](Communicator& world)
         {
             if (world.rank() == culprit) { sleep_forever(); }
             return ExitCode::done;
         }},
        {"one-is-killed", [](Communicator& world)
         {
             if (world.rank() == culprit)
             {
                 ::usleep(800000);
                 ::kill(::getpid(), SIGKILL);
             }
             return wait_for_all(world);
         }},
        {"one-is-killed-while-others-end", [](Communicator& world)
         {
             if (world.rank() == culprit)
             {
                 ::usleep(800000);
                 ::kill(::getpid(), SIGKILL);
             }
             return ExitCode::done;
         }},
        {"one-is-killed-in-the-middle", [](Communicator& world)
         {
             Stream stream;
             std::vector<float> data(8 << 20, 1);
             Work reduced = world.all_reduce(view_of(data), ReduceOp::sum, stream);
             if (world.rank() == culprit) { ::kill(::getpid(), SIGKILL); }
             reduced.wait(stream);
             return ExitCode::done;
         }},
        {"ranks-disagree", [](Communicator& world)
         {
             Stream stream;
             std::vector<float> data(world.rank() == culprit ? 100000 : 200000, 1);
             world.all_reduce(view_of(data), ReduceOp::sum, stream).wait(stream);
             return ExitCode::done;
         }},
        {"one-cannot-share-memory", [](Communicator& world)
         {
             Stream stream;
             struct rlimit files = {};
             ::getrlimit(RLIMIT_NOFILE, &files);
             const rlim_t usual = files.rlim_cur;
             const int lowest = ::open("/dev/null", O_RDONLY);
             ::close(lowest);
             files.rlim_cur = static_cast<rlim_t>(lowest);
             if (world.rank() == culprit) { ::setrlimit(RLIMIT_NOFILE, &files); }
             const auto first = world.subgroup("first", {0, 1});
             const auto second = world.subgroup("second", {1, 0});
             files.rlim_cur = usual;
             ::setrlimit(RLIMIT_NOFILE, &files);
             std::vector<float> data(200000, 1);
             for (Communicator* group : {first.get(), second.get()})
             {
                 group->all_reduce(view_of(data), ReduceOp::sum, stream).wait(stream);
             }
             for (const float sum : data) { VALIDATE(sum == 4, InternalError, "{} is no sum of 4 ones", sum); }
             return ExitCode::done;
         }},
        {"one-leaves", [](Communicator& world) { return world.rank() == culprit ? ExitCode::done : wait_for_all(world); }},
        {"one-forgets-to-wait", [](Communicator& world)
         {
             Stream stream;
             std::vector<float> data(1000);
             Work reduced = world.all_reduce(view_of(data), ReduceOp::sum, stream);
             if (world.rank() == culprit) { return ExitCode::done; }
             reduced.wait(stream);
             return ExitCode::done;
         }},
        {"waits-cross", [](Communicator& world)
         {
             Stream stream;
             std::vector<float> data(5);
             if (world.rank() == culprit) { world.recv(view_of(data), 0, stream).wait(stream); }
             return wait_for_all(world);
         }},
        {"facts", [](Communicator& world)
         {
             if (world.rank() == 0) { std::printf("%s, %d ranks\n", mpi_library().c_str(), static_cast<int>(world.size())); }
             return ExitCode::done;
         }},
    };
    return all;
}

ExitCode run(const Invocation& invocation)
{
    const std::string& name = invocation.positionals.at(0);
    const auto way = ways().find(name);
    VALIDATE(way != ways().end(), UsageError, "there is no way '{}'", name);
    MpiOptions options;
    options.watchdog_s = 3;
    return run_with_mpi(
        [&](Communicator& world)
        {
            if (invocation.positionals.size() > 1) { world.activity().write_to(invocation.positionals[1]); }
            if (world.size() > 1) { work(world); }
            return way->second(world);
        },
        options);
}

}  // namespace

int main(int argc, char** argv)
{
    ToolSpec tool;
    tool.name = "mpi_job_probe";
    Command command;
    command.run_files = RunFiles::refused;
    command.positionals = {{"WAY", "how it ends", 1, 1}, {"DIRECTORY", "for status files", 0, 1}};
    command.run = run;
    tool.commands = {command};
    return run_tool(argc, argv, tool);
}
