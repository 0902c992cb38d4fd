#include "base/run_tool.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "base/suggest.hpp"
#include "base/text_file.hpp"
#include "base/text_layout.hpp"

namespace plimsoll
{

namespace
{

constexpr std::size_t width = 100;
constexpr std::size_t column = 32;

void print(std::FILE* stream, const std::string& text) { std::fwrite(text.data(), 1, text.size(), stream); }

/// One line whatever the error holds, so that a log or a script can rely on it.
void report(const std::string& tool, std::string message)
{
    std::replace(message.begin(), message.end(), '\n', ' ');
    print(stderr, tool + ": " + message + "\n");
}

bool before_end_of_options(const std::vector<std::string>& arguments, const std::string& name)
{
    const auto end = std::find(arguments.begin(), arguments.end(), "--");
    return std::find(arguments.begin(), end, name) != end;
}

std::string usage_line(const ToolSpec& tool, const Command& command)
{
    std::string line = "usage: " + tool.name;
    if (!command.name.empty()) { line += " " + command.name; }
    for (const Positional& positional : command.positionals)
    {
        const std::string shown = positional.name + (positional.maximum != 1 ? " ..." : "");
        line += positional.minimum == 0 ? " [" + shown + "]" : " " + shown;
    }
    if (command.run_files == RunFiles::accepted) { line += " [--config FILE]..."; }
    return line + " [options]\n";
}

std::string common_rows(const Command& command)
{
    const auto row = [](const std::string& left, const std::string& text)
    { return two_columns(left, text, column, width); };
    std::string rows = "\ncommon\n";
    if (command.run_files == RunFiles::accepted)
    {
        rows += row("--config FILE", "run file; may be given several times, the later wins");
        rows += row("--print-config", "prints every value and where it came from, and ends");
    }
    rows += row("--help", "this text");
    rows += row("--version", "version and build");
    if (command.run_files == RunFiles::accepted)
    {
        rows += "\n";
        rows +=
            wrap_text("Every key of a section is also the option --section.key and the variable PLIMSOLL_SECTION_KEY. "
                      "Precedence: command line, environment, run file, default. Counts take K M B T; bytes need a "
                      "unit (KiB MiB GiB kB MB GB); times s min h; spans are 50 (steps), 2%, 100M tokens, 30min.",
                      0, width);
    }
    return rows;
}

std::string command_rows(const ToolSpec& tool)
{
    std::string rows;
    for (const Command& command : tool.commands)
    {
        if (!command.name.empty()) { rows += two_columns(command.name, command.summary, column, width); }
    }
    return rows.empty() ? ""
                        : "\ncommands\n" + rows + "\n" + tool.name + " COMMAND --help shows a command's options.\n";
}

/// A long command line goes on behind a backslash, so that it can still be pasted into a shell.
std::string example_rows(const std::string& example)
{
    if (example.size() + 2 <= width) { return "  " + example + "\n"; }
    std::string rows = wrap_text(example, 6, width - 2).substr(4);
    for (std::size_t at = rows.find('\n'); at + 1 < rows.size(); at = rows.find('\n', at + 3))
    {
        rows.insert(at, " \\");
    }
    return rows;
}

void print_command_help(const ToolSpec& tool, const Command& command, const OptionSet& options)
{
    const std::string title = tool.name + (command.name.empty() ? "" : " " + command.name) + ": " +
                              (command.summary.empty() ? tool.summary : command.summary);
    std::string text = wrap_text(title, 0, width) + usage_line(tool, command);
    if (!command.positionals.empty()) { text += "\n"; }
    for (const Positional& positional : command.positionals)
    {
        text += two_columns(positional.name, positional.help, column, width);
    }
    std::vector<std::string> sections = command.sections;
    sections.insert(sections.end(), command.values_of.begin(), command.values_of.end());
    text += options.help(sections) + common_rows(command);
    if (command.name.empty()) { text += command_rows(tool); }
    if (!command.examples.empty()) { text += "\nexamples\n"; }
    for (const std::string& example : command.examples) { text += example_rows(example); }
    print(stdout, text);
}

void print_tool_help(const ToolSpec& tool)
{
    print(stdout, tool.name + ": " + tool.summary + "\nusage: " + tool.name + " COMMAND ...\n" + command_rows(tool));
}

/// Takes the command's name off the arguments; nullptr when there is none to take and no unnamed command.
const Command* choose_command(const ToolSpec& tool, std::vector<std::string>& arguments)
{
    const Command* unnamed = nullptr;
    std::vector<std::string> names;
    for (const Command& command : tool.commands)
    {
        if (command.name.empty()) { unnamed = &command; }
        else { names.push_back(command.name); }
        if (!command.name.empty() && !arguments.empty() && arguments[0] == command.name)
        {
            arguments.erase(arguments.begin());
            return &command;
        }
    }
    if (arguments.empty() || arguments[0].empty() || arguments[0][0] == '-') { return unnamed; }
    const std::string nearest = nearest_name(arguments[0], names);
    // A word that the unnamed command takes, or that looks like no command, is that one's to judge.
    if (unnamed != nullptr &&
        (!unnamed->positionals.empty() || names.empty() || edit_distance(arguments[0], nearest) > 2))
    {
        return unnamed;
    }
    throw UsageError(
        fmt::format("unknown command '{}' (commands: {}). nearest: {}", arguments[0], fmt::join(names, " "), nearest));
}

void check_positionals(const Command& command, const std::vector<std::string>& given)
{
    std::size_t needed = 0;
    std::size_t allowed = 0;
    bool unlimited = false;
    for (const Positional& positional : command.positionals)
    {
        needed += static_cast<std::size_t>(positional.minimum);
        unlimited = unlimited || positional.maximum < 0;
        allowed += static_cast<std::size_t>(std::max(positional.maximum, 0));
        VALIDATE(given.size() >= needed, UsageError, "{} is missing ({}). see --help", positional.name,
                 positional.help);
    }
    VALIDATE(unlimited || given.size() <= allowed, UsageError,
             "unexpected argument '{}' (an option without its dashes?). see --help", given[allowed]);
}

/// Whether another process that a launcher started says what all processes would say alike before they run.
bool is_one_of_many()
{
    for (const char* name : {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID"})
    {
        if (const char* rank = std::getenv(name)) { return std::strcmp(rank, "0") != 0; }
    }
    return false;
}

/// What is said before the tool runs comes from the first process only.
enum class Phase
{
    parsing,
    running,
};

ExitCode run_command(const ToolSpec& tool, const Command& command, std::vector<std::string> arguments, Phase& phase)
{
    OptionSet options(command.run_files);
    if (command.declare) { command.declare(options); }
    for (const std::string& name : command.required) { options.at(name).required(); }
    options.use_sections(command.sections);
    if (before_end_of_options(arguments, "--help") || before_end_of_options(arguments, "-h"))
    {
        if (!is_one_of_many()) { print_command_help(tool, command, options); }
        return ExitCode::done;
    }
    const auto shown =
        std::find(arguments.begin(), std::find(arguments.begin(), arguments.end(), "--"), "--print-config");
    const bool print_config = before_end_of_options(arguments, "--print-config");
    if (print_config) { arguments.erase(shown); }
    Invocation invocation;
    invocation.tool = tool.name;
    invocation.command = command.name;
    invocation.options = &options;
    invocation.positionals = options.parse(arguments);
    if (print_config)
    {
        if (!is_one_of_many()) { print(stdout, options.print_config()); }
        return ExitCode::done;
    }
    check_positionals(command, invocation.positionals);
    options.check_required();
    if (command.validate) { command.validate(); }
    phase = Phase::running;
    return command.run(invocation);
}

ExitCode dispatch(const ToolSpec& tool, std::vector<std::string> arguments, Phase& phase)
{
    if (before_end_of_options(arguments, "--version"))
    {
        if (!is_one_of_many()) { print(stdout, tool.name + " " + version_with_build() + "\n"); }
        return ExitCode::done;
    }
    const Command* command = choose_command(tool, arguments);
    if (command != nullptr) { return run_command(tool, *command, std::move(arguments), phase); }
    if (before_end_of_options(arguments, "--help") || before_end_of_options(arguments, "-h"))
    {
        print_tool_help(tool);
        return ExitCode::done;
    }
    std::vector<std::string> names;
    for (const Command& known : tool.commands) { names.push_back(known.name); }
    throw UsageError(fmt::format("no command given (commands: {}). see --help", fmt::join(names, " ")));
}

}  // namespace

int run_tool(int argc, const char* const* argv, const ToolSpec& tool)
{
    ExitCode code = ExitCode::failed;
    Phase phase = Phase::parsing;
    try
    {
        std::vector<std::string> arguments;
        for (int i = 1; i < argc; ++i) { arguments.emplace_back(argv[i]); }
        code = dispatch(tool, std::move(arguments), phase);
        errno = 0;
        if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
        {
            throw IoError(fmt::format("cannot write to standard output ({})", system_reason(errno)));
        }
    }
    catch (const Error& error)
    {
        if (phase == Phase::running || !is_one_of_many()) { report(tool.name, error.what()); }
        code = error.exit_code();
    }
    catch (const std::bad_alloc&)
    {
        report(tool.name,
               "out of memory (the system refused an allocation). close other programs or use a smaller batch");
        code = ExitCode::failed;
    }
    catch (const std::exception& error)
    {
        report(tool.name,
               fmt::format("unexpected error ({}). this is a fault of {}, please report it", error.what(), tool.name));
        code = ExitCode::failed;
    }
    catch (...)
    {
        report(tool.name,
               fmt::format("unexpected error of unknown type. this is a fault of {}, please report it", tool.name));
        code = ExitCode::failed;
    }
    return static_cast<int>(code);
}

}  // namespace plimsoll
