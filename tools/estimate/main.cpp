// plimsoll-estimate: run file -> plan -> table and verdict. Starts nothing, opens no data.

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>

#include "base/cores.hpp"
#include "base/error.hpp"
#include "base/run_tool.hpp"
#include "layout/run_config_limits.hpp"
#include "layout/device_mesh.hpp"
#include "plan/plan_inputs.hpp"
#include "report.hpp"
#include "schedule_report.hpp"
#include "telemetry/host_memory.hpp"

namespace
{

using namespace plimsoll;

struct Options
{
    RunConfig config;
    std::int64_t world = 0;  ///< 0: as many ranks as dp tp pp say, dp auto being 1
    bool json = false;
    bool draw_schedule = false;
};

void declare(OptionSet& set, Options& options)
{
    declare_run_config(set, options.config);
    set.add_count("", "world", options.world, "ranks of the run: what dp = auto divides")
        .range(0)
        .shown_default("dp x tp x pp, dp auto being 1");
    set.add_flag("", "json", options.json, "print the plan as JSON on stdout");
    set.add_flag("", "draw-schedule", options.draw_schedule,
                 "print the pipeline's schedule instead of the plan; needs no model");
}

/// A step's pipeline as a picture. The model only says whether its layers suffice.
ExitCode draw(const Options& options)
{
    const RunConfig& config = options.config;
    const ParallelLayout layout = parallel_layout(config, std::max<std::int64_t>(1, options.world));
    if (config.model.name.empty())
    {
        VALIDATE(layout.global_batch % (layout.dp * layout.micro_batch) == 0, ConfigError,
                 "global batch {} is not a multiple of dp {} x micro-batch {}", layout.global_batch, layout.dp, layout.micro_batch);
        const std::vector<std::string> faults = schedule_faults(layout);
        VALIDATE(faults.empty(), ConfigError, "{}", fmt::join(faults, "; "));
    }
    else
    {
        const std::int64_t world = options.world > 0 ? options.world : layout.world();
        const std::vector<std::string> faults = validate(layout, read_model_spec(config.model.name), world);
        VALIDATE(faults.empty(), ConfigError, "{}", fmt::join(faults, "; "));
    }
    const PipelineSchedule schedule = step_schedule(layout, Repeats::all);
    const std::string text = options.json ? schedule_json(schedule) : schedule_text(schedule);
    std::fwrite(text.data(), 1, text.size(), stdout);
    return ExitCode::done;
}

ExitCode run(const Options& options, const OptionSet& set)
{
    if (options.draw_schedule) { return draw(options); }
    set.require({"model.name", "data.seq-len"});
    const RunConfig& config = options.config;
    const ModelSpec model = read_model_spec(config.model.name);
    ParallelLayout layout = parallel_layout(config, std::max<std::int64_t>(1, options.world));
    const std::int64_t world = options.world > 0 ? options.world : layout.world();
    const std::string faults = layout_faults(layout, model, config.data.seq_len, world);
    VALIDATE(faults.empty(), ConfigError, "{}", faults);

    const std::int64_t local = planned_local_ranks(config.cluster, world);
    const std::string crossing = config.layout.tp_across_nodes || local >= world ? "" : tp_node_fault(layout, local);
    VALIDATE(crossing.empty(), ConfigError, "{}", crossing);
    const std::int64_t threads =
        config.run.threads > 0 ? config.run.threads : std::max<std::int64_t>(1, allowed_cores() / local);
    // The shards may not exist yet; that the run file names some is what counts.
    const bool validates =
        (set.is_set("eval.shards") && config.eval.every.unit != Span::Unit::never) || config.eval.is_planned();
    const StepPolicies policies = step_policies(config, threads, validates ? Validation::planned : Validation::none);
    const MemoryLimit limit = memory_limit(config.cluster, machine_memory_bytes(), local);
    const MemoryPlan plan = plan_memory(model, layout, policies);
    const std::vector<Knob> knobs = turn_knobs(plan);
    const std::string text = options.json ? memory_json(plan, limit, knobs)
                                          : memory_table(plan, limit, knobs, config.train.precision);
    std::fwrite(text.data(), 1, text.size(), stdout);
    if (plan.peak_bytes() > limit.bytes) { throw ConfigError(refusal_text(plan, limit)); }
    return ExitCode::done;
}

}  // namespace

int main(int argc, char** argv)
{
    Options options;
    ToolSpec tool;
    tool.name = "plimsoll-estimate";
    tool.summary = "predicts the memory of a training run before it starts: exit 0 when it fits, 2 when not";
    Command command;
    command.sections = {"run", "model", "layout", "cluster"};
    command.values_of = {"data", "train", "eval"};
    command.examples = {
        "plimsoll-estimate --config jobs/demo.ini",
        "plimsoll-estimate --config jobs/demo.ini --world 4 --tp 2 --zero 1",
        "plimsoll-estimate --model llama-3.1-8b --seq-len 8192 --tp 8 --pp 2 --memory-limit 80GiB",
        "plimsoll-estimate --config jobs/demo.ini --cluster slurm/clusters/workstation.json --json",
        "plimsoll-estimate --pp 4 --global-batch 8 --pp-schedule zbv --draw-schedule",
    };
    command.declare = [&](OptionSet& set) { declare(set, options); };
    command.run = [&](const Invocation& invocation) { return run(options, *invocation.options); };
    tool.commands = {command};
    return run_tool(argc, argv, tool);
}
