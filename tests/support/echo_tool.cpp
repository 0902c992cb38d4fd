/// A tool with the whole run file and nothing behind it: what tests/cli checks here holds for every tool.

#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>

#include "base/run_tool.hpp"
#include "layout/run_config.hpp"

namespace
{

struct Options
{
    plimsoll::RunConfig config;
    std::vector<std::string> inputs;
    std::string out;
    std::string fail;
    std::int64_t limit = 0;
    bool dry_run = false;
};

void declare(plimsoll::OptionSet& options, Options& o)
{
    options.add_paths("", "input", o.inputs, "text to read; globs expand");
    options.add_path("", "out", o.out, "where to write").value_name("DIR");
    options.add_bytes("", "budget", o.limit, "of a rank").range(0);
    options.add_flag("", "dry-run", o.dry_run, "checks everything and ends");
    options.add_choice("", "fail", o.fail,
                       {"usage", "io", "numeric", "interrupted", "internal", "memory", "standard", "other"},
                       "ends with this error");
    plimsoll::declare_run_config(options, o.config);
}

plimsoll::ExitCode fail(const std::string& kind)
{
    if (kind == "usage") { throw plimsoll::UsageError("this is wrong (because). do that"); }
    if (kind == "io")
    {
        plimsoll::with_context("while writing x.h5", [] { throw plimsoll::IoError("no space left on device"); });
    }
    if (kind == "numeric") { throw plimsoll::NumericError("loss is nan\nat step 7"); }
    if (kind == "interrupted") { throw plimsoll::Interrupted("stopped at step 7. start it again to continue"); }
    if (kind == "internal") { EXPECT(kind.empty()); }
    if (kind == "memory") { throw std::bad_alloc(); }
    if (kind == "standard") { throw std::out_of_range("index 7"); }
    if (kind == "other") { throw 7; }
    return plimsoll::ExitCode::done;
}

plimsoll::ExitCode run(const Options& o, const plimsoll::Invocation& invocation)
{
    for (const std::string& input : o.inputs) { std::printf("input %s\n", input.c_str()); }
    for (const std::string& word : invocation.positionals) { std::printf("positional %s\n", word.c_str()); }
    if (!o.out.empty()) { std::printf("out %s\n", o.out.c_str()); }
    if (o.limit > 0) { std::printf("limit %lld\n", static_cast<long long>(o.limit)); }
    if (o.dry_run) { std::printf("dry run\n"); }
    std::fputs(invocation.options->snapshot().c_str(), stdout);
    return fail(o.fail);
}

plimsoll::Command make(Options& o, const std::string& name, const std::string& summary)
{
    plimsoll::Command command;
    command.name = name;
    command.summary = summary;
    command.declare = [&o](plimsoll::OptionSet& options) { declare(options, o); };
    command.run = [&o](const plimsoll::Invocation& invocation) { return run(o, invocation); };
    return command;
}

}  // namespace

int main(int argc, char** argv)
{
    Options o;
    plimsoll::ToolSpec tool;
    tool.name = "plimsoll-echo";
    tool.summary = "shows what a tool makes of its options";
    plimsoll::Command show = make(o, "show", "uses the whole run file");
    show.sections = {"run", "model", "layout", "data", "train", "eval", "checkpoint", "cluster"};
    show.examples = {"plimsoll-echo show --config demo.ini --tp 1"};
    plimsoll::Command train = make(o, "train", "needs what training needs");
    train.sections = show.sections;
    train.required = {"model.name", "data.seq-len", "train.lr"};
    train.validate = [&o] { plimsoll::validate_run_config(o.config); };
    plimsoll::Command prepare = make(o, "prepare", "uses [run] only, as a tool that makes the data does");
    prepare.sections = {"run"};
    plimsoll::Command inspect = make(o, "inspect", "looks at a directory");
    inspect.run_files = plimsoll::RunFiles::refused;
    inspect.declare = [&o](plimsoll::OptionSet& options)
    { options.add_path("", "out", o.out, "where to write").required(); };
    plimsoll::Positional directory;
    directory.name = "DIR";
    directory.help = "a checkpoint or a directory with latest";
    inspect.positionals = {directory};
    tool.commands = {show, train, prepare, inspect};
    return plimsoll::run_tool(argc, argv, tool);
}
