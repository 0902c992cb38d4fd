// plimsoll-reshard: a checkpoint in another layout; what is in one, and whether all of it is sound.

#include <cstdio>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/progress.hpp"
#include "base/run_tool.hpp"
#include "choose_step.hpp"
#include "io/checkpoint.hpp"
#include "report.hpp"
#include "rewrite.hpp"

namespace
{

using namespace plimsoll;

struct Options
{
    std::int64_t step = -1;
    std::string tensor;
    std::string level = "full";
    bool json = false;

    OutputKind output() const { return json ? OutputKind::json : OutputKind::text; }
};

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void add_step(OptionSet& options, Options& o)
{
    options.add_count("", "step", o.step, "this step of a directory with several").value_name("N").shown_default("the newest").range(-1);
}

ExitCode run_inspect(const Options& o, const std::string& dir)
{
    Log log(stderr);
    std::vector<std::string> warnings;
    const CheckpointReader reader(choose_step(dir, o.step, warnings));
    for (const std::string& warning : warnings) { log.warning(warning); }
    print(o.tensor.empty() ? inspect_report(reader, o.output()) : tensor_report(reader, o.tensor, o.output()));
    return ExitCode::done;
}

VerifyReport verify(const std::string& path, const std::string& level)
{
    if (level == "meta") { return verify_checkpoint(path, VerifyLevel::meta); }
    const VerifyReport quick = verify_checkpoint(path, VerifyLevel::size);
    if (level == "size") { return quick; }
    Progress progress(stderr, kind_of(stderr), "verify", ProgressUnit::bytes, quick.bytes);
    const VerifyReport report =
        verify_checkpoint(path, VerifyLevel::full, [&progress](std::int64_t bytes) { progress.update(bytes); });
    progress.finish();
    return report;
}

ExitCode run_verify(const Options& o, const Invocation& invocation)
{
    std::vector<std::string> warnings;
    const std::string path = choose_step(invocation.positionals[0], o.step, warnings);
    VerifyReport report = verify(path, o.level);
    // A newer step that had to be skipped is a fault of what the user asked about.
    report.faults.insert(report.faults.begin(), warnings.begin(), warnings.end());
    print(verify_report(path, o.level, report, o.output()));
    if (report.faults.empty()) { return ExitCode::done; }
    for (std::size_t k = 0; k + 1 < report.faults.size(); ++k)
    {
        std::fprintf(stderr, "%s: %s\n", invocation.tool.c_str(), report.faults[k].c_str());
    }
    throw FormatError(report.faults.back());
}

Command inspect_command(Options& o)
{
    Command command;
    command.name = "inspect";
    command.summary = "shows tensors, shapes, files, layout and scalars, or the figures of one tensor";
    command.run_files = RunFiles::refused;
    command.positionals = {{"DIR", "a step, a directory with steps, or a run directory", 1, 1}};
    command.examples = {"plimsoll-reshard inspect runs/demo", "plimsoll-reshard inspect runs/demo --tensor final_norm.weight"};
    command.declare = [&o](OptionSet& options) {
        add_step(options, o);
        options.add_text("", "tensor", o.tensor, "figures of this tensor: NAME in all states, or STATE/NAME").value_name("NAME");
        options.add_flag("", "json", o.json, "as JSON");
    };
    command.run = [&o](const Invocation& invocation) { return run_inspect(o, invocation.positionals[0]); };
    return command;
}

Command verify_command(Options& o)
{
    Command command;
    command.name = "verify";
    command.summary = "checks a checkpoint and ends in ok, or names file, dataset and block";
    command.run_files = RunFiles::refused;
    command.positionals = {{"DIR", "a step, a directory with steps, or a run directory", 1, 1}};
    command.examples = {"plimsoll-reshard verify runs/demo", "plimsoll-reshard verify runs/demo/ckpt/step_00000020 --level meta"};
    command.declare = [&o](OptionSet& options) {
        add_step(options, o);
        options.add_choice("", "level", o.level, {"size", "meta", "full"},
                           "size: commit and file sizes; meta: all but the data; full: every byte");
        options.add_flag("", "json", o.json, "as JSON");
    };
    command.run = [&o](const Invocation& invocation) { return run_verify(o, invocation); };
    return command;
}

}  // namespace

int main(int argc, char** argv)
{
    Options o;
    RewriteOptions rewrite;
    ToolSpec tool;
    tool.name = "plimsoll-reshard";
    tool.summary = "writes a checkpoint in another layout; looks into checkpoints and verifies them";
    tool.commands = {rewrite_command(rewrite), inspect_command(o), verify_command(o)};
    return run_tool(argc, argv, tool);
}
