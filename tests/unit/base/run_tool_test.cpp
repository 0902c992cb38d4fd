#include "base/run_tool.hpp"

#include <gtest/gtest.h>

using namespace plimsoll;

namespace
{

/// A tool that works without a sub-command and has one besides.
ToolSpec mixed_tool(std::string& ran)
{
    ToolSpec tool;
    tool.name = "plimsoll-mixed";
    tool.summary = "does two things";
    for (const char* name : {"", "inspect"})
    {
        Command command;
        command.name = name;
        command.summary = *name == 0 ? "the main thing" : "looks at a directory";
        Positional positional;
        positional.name = "DIR";
        positional.help = "a directory";
        positional.maximum = -1;
        command.positionals = {positional};
        command.examples = {"plimsoll-mixed one", "plimsoll-mixed " + std::string(40, 'a') + " " +
                                                      std::string(40, 'b') + " " + std::string(90, 'c') + " d"};
        command.run = [&ran](const Invocation& invocation)
        {
            ran = fmt::format("{}({})", invocation.command, fmt::join(invocation.positionals, ","));
            return ExitCode::done;
        };
        tool.commands.push_back(command);
    }
    return tool;
}

struct Outcome
{
    int code = -1;
    std::string ran, out, err;
};

Outcome call(const std::vector<const char*>& arguments)
{
    Outcome outcome;
    const ToolSpec tool = mixed_tool(outcome.ran);
    std::vector<const char*> argv = {"plimsoll-mixed"};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    ::testing::internal::CaptureStdout();
    ::testing::internal::CaptureStderr();
    outcome.code = run_tool(static_cast<int>(argv.size()), argv.data(), tool);
    outcome.out = ::testing::internal::GetCapturedStdout();
    outcome.err = ::testing::internal::GetCapturedStderr();
    return outcome;
}

}  // namespace

TEST(RunTool, TheUnnamedCommandTakesWhatNamesNoOther)
{
    EXPECT_EQ(call({"a", "b"}).ran, "(a,b)");
    EXPECT_EQ(call({"inspect", "a"}).ran, "inspect(a)");
    EXPECT_EQ(call({"a", "inspect"}).ran, "(a,inspect)");
}

TEST(RunTool, HelpOfTheUnnamedCommandListsTheOthers)
{
    const Outcome outcome = call({"--help"});
    EXPECT_EQ(outcome.code, 0);
    EXPECT_EQ(outcome.out.find(
                  "plimsoll-mixed: the main thing\nusage: plimsoll-mixed DIR ... [--config FILE]... [options]\n"),
              0u)
        << outcome.out;
    EXPECT_NE(outcome.out.find("\ncommands\n  inspect                       looks at a directory\n"),
              std::string::npos);
    EXPECT_EQ(call({"inspect", "--help"}).out.find("\ncommands\n"), std::string::npos);
}

TEST(RunTool, LongExamplesCanBePastedIntoAShell)
{
    const std::string out = call({"--help"}).out;
    const std::string rows = out.substr(out.find("\nexamples\n") + 10);
    EXPECT_EQ(rows, "  plimsoll-mixed one\n  plimsoll-mixed " + std::string(40, 'a') + " \\\n      " +
                        std::string(40, 'b') + " \\\n      " + std::string(90, 'c') + " d\n");
}

TEST(RunTool, MissingArgumentsAreNamed)
{
    const Outcome outcome = call({});
    EXPECT_EQ(outcome.code, 2);
    EXPECT_EQ(outcome.err, "plimsoll-mixed: DIR is missing (a directory). see --help\n");
}
