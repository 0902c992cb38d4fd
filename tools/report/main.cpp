// plimsoll-report: a run directory as one page, a terminal summary, or figures for machines.

#include <sys/ioctl.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "base/error.hpp"
#include "base/run_tool.hpp"
#include "base/text_file.hpp"
#include "base/units.hpp"
#include "page.hpp"
#include "telemetry/host.hpp"

using namespace plimsoll;

namespace
{

struct Options
{
    std::string out;
    bool text = false;
    bool json = false;
    ReportStyle style;
};

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

/// The first of LC_ALL, LC_CTYPE and LANG that is set decides, as in the C library.
Glyphs glyphs_of_locale()
{
    for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"})
    {
        const char* value = std::getenv(name);
        if (value == nullptr || *value == '\0') { continue; }
        const std::string locale = value;
        for (const char* charset : {"UTF-8", "UTF8", "utf-8", "utf8"})
        {
            if (locale.find(charset) != std::string::npos) { return Glyphs::unicode; }
        }
        return Glyphs::ascii;
    }
    return Glyphs::ascii;
}

int terminal_width()
{
    constexpr int least = 50, most = 160, usual = 80;
    int columns = 0;
    if (const char* value = std::getenv("COLUMNS")) { columns = std::atoi(value); }
    winsize size = {};
    if (columns <= 0 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) { columns = size.ws_col; }
    return columns <= 0 ? usual : std::min(std::max(columns, least), most);
}

ExitCode run(const Options& o, const std::string& directory)
{
    const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    const RunSummary summary = read_run(directory);
    const RunFacts facts = facts_of(summary, now);
    if (o.text) { print(text_page(summary, facts, o.style, glyphs_of_locale(), terminal_width())); }
    if (o.json) { print(json_page(summary, facts)); }
    if ((o.text || o.json) && o.out.empty()) { return ExitCode::done; }
    const std::string out = o.out.empty() ? directory + "/report.html" : o.out;
    const std::string page = html_page(summary, facts, o.style, utc_now().substr(0, 19) + " UTC");
    try
    {
        replace_text(out, page);
    }
    catch (const IoError& error)
    {
        throw IoError(fmt::format("{}. choose another --out", error.what()));
    }
    if (!o.text && !o.json)
    {
        print(fmt::format("report     {}   {}\n{}\n", out, format_storage(static_cast<double>(page.size())),
                          facts.verdict));
    }
    return ExitCode::done;
}

}  // namespace

int main(int argc, char** argv)
{
    Options o;
    ToolSpec tool;
    tool.name = "plimsoll-report";
    tool.summary = "turns a run directory into one page of curves, figures and a verdict (docs/report.md)";
    Command command;
    command.run_files = RunFiles::refused;
    command.positionals = {{"RUN", "run directory, also of a run that is going on", 1, 1}};
    command.examples = {"plimsoll-report runs/demo                            writes runs/demo/report.html",
                        "plimsoll-report runs/demo --out $HOME/demo.html --loss-scale log",
                        "plimsoll-report runs/demo --text                     in the terminal, nothing is written",
                        "plimsoll-report runs/demo --json > demo.json"};
    command.declare = [&o](OptionSet& options)
    {
        options.add_path("", "out", o.out, "the page").value_name("FILE").shown_default("RUN/report.html");
        options.add_flag("", "text", o.text, "print a summary with small charts; no page without --out");
        options.add_flag("", "json", o.json, "print the figures as JSON; no page without --out");
        options.add_choice("", "loss-scale", o.style.loss_scale, {"auto", "linear", "log"},
                           "axis of the loss chart; auto: log where the loss falls by more than 20 times");
    };
    command.validate = [&o]
    { VALIDATE(!(o.text && o.json), UsageError, "--text and --json both print on stdout. give one of them"); };
    command.run = [&o](const Invocation& invocation) { return run(o, invocation.positionals[0]); };
    tool.commands = {command};
    return run_tool(argc, argv, tool);
}
