#include "rewrite.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <memory>

#include "base/error.hpp"
#include "base/log.hpp"
#include "base/progress.hpp"
#include "base/signals.hpp"
#include "base/units.hpp"
#include "choose_step.hpp"
#include "comm/exchange.hpp"
#include "comm_mpi/run_with_mpi.hpp"
#include "io/reshard.hpp"
#include "report.hpp"

namespace plimsoll
{
namespace
{

void print(const std::string& text)
{
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);  // the plan is read while the work goes on
}

double now_seconds()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// One answer for all ranks.
std::string choose_together(const std::string& in, std::int64_t step, Communicator& world)
{
    std::string path;
    agree(world, [&] {
        if (world.rank() != 0) { return; }
        std::vector<std::string> warnings;
        path = choose_step(in, step, warnings);
        Log log(stderr);
        for (const std::string& warning : warnings) { log.warning(warning); }
    });
    return broadcast_bytes(world, path, 0);
}

ReshardOptions reshard_options(const RewriteOptions& o, const std::string& source, const std::string& out)
{
    ReshardOptions options;
    options.source = source;
    options.out = out;
    const RunConfig::Layout& layout = o.config.layout;
    options.layout.tp = layout.tp;
    options.layout.pp = layout.pp;
    options.layout.dp = layout.dp == 0 ? 1 : layout.dp;
    options.layout.zero_stage = layout.zero;
    options.layout.dp_shard = layout.dp_shard;
    options.layout.schedule = parse_pipeline_kind(layout.schedule);
    options.layout.virtual_stages =
        layout.virtual_stages > 0 ? layout.virtual_stages : default_num_chunks(options.layout.schedule);
    options.layout.split = parse_stage_split(layout.pp_split);
    if (o.config.cluster.memory_limit > 0) { options.memory_limit = o.config.cluster.memory_limit; }
    return options;
}

/// The line of rank 0, which stands for all: the work is divided evenly.
class Shown
{
  public:
    Shown(const ReshardSummary& summary, bool visible) : summary_(summary), start_(now_seconds())
    {
        if (!visible) { return; }
        progress_ = std::make_unique<Progress>(stderr, kind_of(stderr), "reshard", ProgressUnit::bytes, summary.data_bytes);
    }
    void update(const ReshardProgress& now)
    {
        if (!progress_ || now.to_write == 0) { return; }
        const double share = static_cast<double>(now.written) / static_cast<double>(now.to_write);
        const double read = static_cast<double>(now.read) / static_cast<double>(now.to_write) *
                            static_cast<double>(summary_.data_bytes) / std::max(1e-3, now_seconds() - start_);
        progress_->update(static_cast<std::int64_t>(share * static_cast<double>(summary_.data_bytes)),
                          fmt::format("read {}", format_rate(read)));
    }
    void finish()
    {
        if (progress_) { progress_->finish(); }
    }

  private:
    const ReshardSummary& summary_;
    double start_;
    std::unique_ptr<Progress> progress_;
};

void declare(OptionSet& options, RewriteOptions& o)
{
    declare_run_config(options, o.config);
    options.at("layout.dp").shown_default("auto: 1");
    options.at("cluster.memory-limit").shown_default("512MiB");
    options.add_count("", "step", o.step, "this step of a directory with several").value_name("N").shown_default("the newest").range(-1);
    options.add_flag("", "dry-run", o.dry_run, "show what would be read, written and needed, and end");
    options.add_flag("", "json", o.json, "report as JSON on stdout");
    options.add_peer_hint("load-dir", "IN, the first argument");
    options.add_peer_hint("save-dir", "OUT, the second argument");
    options.add_peer_hint("target-tensor-parallel-size", "--tp");
    options.add_peer_hint("target-pipeline-parallel-size", "--pp");
    options.add_peer_hint("target-tp", "--tp");
    options.add_peer_hint("target-pp", "--pp");
    options.add_peer_hint("max-queue-size", "--memory-limit");
}

}  // namespace

ExitCode run_rewrite(const RewriteOptions& o, const std::string& in, const std::string& out, Communicator& world)
{
    const bool is_first = world.rank() == 0;
    Reshard reshard(reshard_options(o, choose_together(in, o.step, world), out), world);
    const ReshardSummary& summary = reshard.summary();
    if (is_first && !o.json) { print(plan_report(summary)); }
    if (o.dry_run)
    {
        if (is_first && o.json) { print(rewrite_json(summary, nullptr, 0)); }
        return ExitCode::done;
    }
    const StopSignals signals(Usr1::untouched);
    const double start = now_seconds();
    Shown shown(summary, is_first);
    const ReshardResult result = reshard.run([&](const ReshardProgress& now) {
        VALIDATE(!signals.requested(), Interrupted, "stopped by {} (nothing was written). run the same command again", signals.name());
        shown.update(now);
    });
    shown.finish();
    const double seconds = now_seconds() - start;
    if (is_first) { print(o.json ? rewrite_json(summary, &result, seconds) : result_report(summary, result, seconds)); }
    return ExitCode::done;
}

Command rewrite_command(RewriteOptions& o)
{
    Command command;
    command.summary = "writes a checkpoint as a run of another layout would have saved it: all states, each digest compared";
    command.sections = {"layout", "cluster"};
    command.positionals = {{"IN", "a step, a directory with steps, or a run directory", 1, 1},
                           {"OUT", "directory of the new step; made when missing", 1, 1}};
    command.examples = {"plimsoll-reshard runs/demo out --tp 1 --pp 2 --dp 2 --zero 1 --dry-run",
                        "mpiexec -n 4 plimsoll-reshard runs/demo out --tp 1 --pp 2 --dp 2 --zero 1",
                        "plimsoll-reshard runs/demo out --config eight_ranks.ini --memory-limit 2GiB",
                        "plimsoll-reshard inspect runs/demo               what is in a checkpoint",
                        "plimsoll-reshard verify out --level full         checks every byte"};
    command.declare = [&o](OptionSet& options) { declare(options, o); };
    command.run = [&o](const Invocation& invocation) {
        return run_with_mpi([&](Communicator& world)
                            { return run_rewrite(o, invocation.positionals[0], invocation.positionals[1], world); });
    };
    return command;
}

}  // namespace plimsoll
