#pragma once
/// The one main() of all tools: --help, --version, --print-config, parse, validate, run, report, one exit code.
///
///     int main(int argc, char** argv)
///     {
///         Options o;
///         plimsoll::ToolSpec tool;
///         tool.name = "plimsoll-shard";
///         tool.summary = "turns text into token shards";
///         plimsoll::Command command;
///         command.declare = [&](plimsoll::OptionSet& options) { declare(options, o); };
///         command.run = [&](const plimsoll::Invocation&) { return run(o); };
///         tool.commands = {command};
///         return plimsoll::run_tool(argc, argv, tool);
///     }
///
/// A tool with sub-commands (plimsoll-reshard inspect DIR) lists several, each with a name.

#include <functional>
#include <string>
#include <vector>

#include "base/cli.hpp"
#include "base/error.hpp"

namespace plimsoll
{

/// A positional argument: `DIR`. All but the last must have minimum = maximum = 1.
struct Positional
{
    std::string name;  ///< "DIR", shown in the usage line
    std::string help;
    int minimum = 1;
    int maximum = 1;  ///< -1: any number
};

/// What run() gets after everything was parsed and validated.
struct Invocation
{
    std::string tool;     ///< "plimsoll-reshard"
    std::string command;  ///< "inspect", empty for a tool without sub-commands
    std::vector<std::string> positionals;
    const OptionSet* options = nullptr;  ///< origins, snapshot(); outlives run()
};

struct Command
{
    std::string name;                         ///< empty: the tool's only command
    std::string summary;                      ///< one line, for --help
    RunFiles run_files = RunFiles::accepted;  ///< refused: no --config
    std::vector<std::string> sections;        ///< run-file sections that it uses: --help shows these; see
                                              ///< OptionSet::use_sections()
    std::vector<std::string> values_of;       ///< further sections whose values it uses, while the files that they name
                                              ///< need not exist
    std::vector<std::string> required;        ///< keys that must be set: "train.lr"
    std::vector<Positional> positionals;
    std::vector<std::string> examples;        ///< whole command lines
    std::function<void(OptionSet&)> declare;  ///< adds the options; called once
    std::function<void()> validate;           ///< optional; checks that need more than one value
    std::function<ExitCode(const Invocation&)> run;
};

struct ToolSpec
{
    std::string name;     ///< "plimsoll-train"
    std::string summary;  ///< "trains a language model"
    std::vector<Command> commands;
};

/// Never throws. Prints `tool: message` as one line on stderr for any error and returns its exit code.
int run_tool(int argc, const char* const* argv, const ToolSpec& tool);

/// "0.1.0 (build cd90b7e31f0a)", the build id as git describes the source.
std::string version_with_build();

}  // namespace plimsoll
