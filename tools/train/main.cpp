// plimsoll-train: options -> checks -> Trainer -> report and exit code.

#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <thread>

#include "base/cores.hpp"
#include "base/exit_as.hpp"
#include "base/output_folder.hpp"
#include "base/run_tool.hpp"
#include "base/text_file.hpp"
#include "base/units.hpp"
#include "comm/exchange.hpp"
#include "comm/launch.hpp"
#include "comm/rank_activity.hpp"
#include "comm_mpi/run_with_mpi.hpp"
#include "io/file.hpp"
#include "mem/plugin.hpp"
#include "nn/trainer.hpp"
#include "plan/plan_inputs.hpp"
#include "telemetry/host_memory.hpp"
#include "telemetry/status_file.hpp"

using namespace plimsoll;

namespace
{

struct Options
{
    RunConfig config;
    const OptionSet* declared = nullptr;
    nn::TrainOptions train;
    bool dry_run = false;
    bool json = false;
};

void declare(OptionSet& set, Options& options)
{
    options.declared = &set;
    declare_run_config(set, options.config);
    set.add_flag("", "dry-run", options.dry_run, "check everything that can be checked, start nothing");
    set.add_flag("", "json", options.json, "print the result as JSON on stdout");
    set.add_count("", "stop-at-step", options.train.stop_at_step,
                  "save and stop after this step (exit 75); the schedule does not change")
        .range(0)
        .shown_default("off");
    set.add_choice("", "data-change", options.train.data_change, {"append"},
                   "the data has grown since the checkpoint: old shards first, new ones behind; from here on all of it is read in an "
                   "order of its own")
        .shown_default("none");
    set.add_texts("", "allow-change", options.train.allow_change,
                  "guarded keys that may differ from the checkpoint's: model, data, data.seq-len, run.seed, "
                  "layout.global-batch, train.optimizer, train.precision")
        .value_name("KEY");
}

/// A key, or the section of keys, that a resume guards.
bool is_guarded(const OptionSet& set, const std::string& name)
{
    for (const Option* option : set.all())
    {
        const std::string key = option->name();
        if ((key == name || key.rfind(name + ".", 0) == 0) && !option->section().empty() &&
            resume_rule(key) == ResumeRule::guarded)
        {
            return true;
        }
    }
    return false;
}

void validate(const Options& options)
{
    validate_run_config(options.config);
    for (const std::string& name : options.train.allow_change)
    {
        VALIDATE(is_guarded(*options.declared, name), UsageError,
                 "--allow-change {}: not a key that a resume guards (others may change without it). guarded: model, data, "
                 "data.seq-len, run.seed, layout.global-batch, train.optimizer, train.precision",
                 name);
    }
}

void describe_run(Log& log, const nn::TrainSetup& setup)
{
    const RunConfig& config = setup.config;
    const std::int64_t world = setup.layout.world();
    log.line(fmt::format("plimsoll-train {}   {} {}   layout {}   {} ({} parameters)   {}   {}", version_with_build(), world,
                         world == 1 ? "rank" : "ranks", layout_text(setup.layout), setup.model.name,
                         format_count(static_cast<double>(setup.parameters)), config.train.precision,
                         config.run.device));
    const std::vector<std::string> data = nn::describe_data(setup);
    for (std::size_t i = 0; i < data.size(); ++i) { log.row(i == 0 ? "data" : "", data[i]); }
    log.row("steps", fmt::format("{} steps of {} sequences ({} x {} accumulated), {} tokens, warmup {}, {}",
                                format_grouped(setup.plan.total_steps), setup.layout.global_batch,
                                setup.layout.micro_batch, setup.layout.accumulation(),
                                format_grouped(setup.plan.total_steps * setup.plan.tokens_per_step),
                                setup.plan.warmup_steps, config.train.schedule));
    log.row("plan", plan_row(setup.memory.worst(), setup.limit));
    for (const std::string& note : setup.model.notes) { log.row("note", note); }
    if (config.train.precision == "bf16" && config.run.device == "cpu")
    {
        log.row("note", "bf16 halves parameters and activations; on a CPU its products go through fp32, so fp32 is the faster type");
    }
    if (setup.layout.sequence_parallel && setup.layout.tp == 1)
    {
        log.row("note", "sequence-parallel has no effect (tp is 1: there are no ranks to cut tokens over)");
    }
}

ExitCode dry_run(const nn::TrainSetup& setup, Log& log)
{
    const std::string checkpoints = setup.config.run.dir + "/ckpt";
    const nn::ResumeChoice choice = nn::choose_resume(setup, checkpoints);
    for (const std::string& warning : choice.warnings) { log.warning(warning); }
    for (const ConfigChange& change : choice.changes)
    {
        log.row("changed", fmt::format("{}: {} -> {}", change.key, change.old_value, change.new_value));
    }
    log.row("resume", choice.step_dir.empty() ? "from step 0" : choice.step_dir);
    RunDirectory::check(setup.config.run.dir);
    const std::int64_t available = free_bytes(existing_folder(setup.config.run.dir));
    const std::int64_t kept = setup.config.checkpoint.keep_last > 0 ? setup.config.checkpoint.keep_last + 1 : 1;
    VALIDATE(available >= setup.checkpoint_bytes * kept, ConfigError,
             "{} has {} free, {} checkpoints of {} need {}. free space or lower keep-last", setup.config.run.dir,
             format_storage(static_cast<double>(available)), kept,
             format_storage(static_cast<double>(setup.checkpoint_bytes)),
             format_storage(static_cast<double>(setup.checkpoint_bytes * kept)));
    log.row("disk", fmt::format("a checkpoint takes {}, {} free", format_storage(static_cast<double>(setup.checkpoint_bytes)),
                                format_storage(static_cast<double>(available))));
    log.row("dry run", "ok: nothing was started or written");
    return ExitCode::done;
}

void print_json(const nn::TrainSetup& setup, const nn::TrainReport& report)
{
    nlohmann::ordered_json out;
    out["schema"] = 1;
    out["exit"] = static_cast<int>(report.exit);
    out["reason"] = report.reason;
    out["step"] = report.step;
    out["total_steps"] = report.total_steps;
    out["consumed_tokens"] = report.consumed_tokens;
    out["loss"] = report.loss;
    out["val_loss"] = report.val_loss > 0 ? nlohmann::ordered_json(report.val_loss) : nlohmann::ordered_json();
    out["peak_bytes"] = report.peak_bytes;
    out["planned_bytes"] = setup.memory.peak_bytes();
    out["seconds"] = report.seconds;
    std::cout << out.dump() << "\n";
}

void print_end(Log& log, const nn::TrainSetup& setup, const nn::TrainReport& report)
{
    if (report.already_finished)
    {
        log.row("done", fmt::format("the run was finished already ({} steps)", format_grouped(report.step)));
        return;
    }
    const std::string counts =
        fmt::format("{} of {} steps, {} tokens, loss {:.4f}   {}", format_grouped(report.step),
                    format_grouped(report.total_steps), format_grouped(report.consumed_tokens), report.loss,
                    plan_against_measured(setup.memory.peak_bytes(), report.peak_bytes));
    if (report.exit == ExitCode::done) { log.row("done", counts); }
    else { log.row("stopped", fmt::format("{} ({}). {}", counts, report.reason, report.hint)); }
}

/// Cores of this rank: those that the launcher bound it to, else its share of the machine's. Where fewer processes run than the
/// world has ranks (a dry run), as plimsoll-estimate counts.
nn::RankResources resources_of_rank(const RunConfig& config, std::int64_t world)
{
    nn::RankResources rank;
    rank.world = world;
    const Launch launch = read_launch();
    rank.local_ranks = launch.world < world ? planned_local_ranks(config.cluster, world) : std::min(launch.local_ranks, world);
    const int usable = allowed_cores();
    const bool bound = usable < static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN));
    rank.threads = config.run.threads > 0 ? config.run.threads
                   : bound                ? usable
                                          : std::max<std::int64_t>(1, usable / rank.local_ranks);
    rank.machine_bytes = machine_memory_bytes();
    return rank;
}

/// status.json of a run: rank 0 keeps it; a rank that fails alone writes its own end.
class StatusKeeper
{
  public:
    StatusKeeper(const std::string& path, Communicator& world, int attempt, std::int64_t step, const StopSignals& signals)
        : path_(path), world_(world), signals_(signals)
    {
        status_.attempt = attempt;
        status_.step = step;
        if (is_root()) { write_status(path_, status_); }
        prepare_for_a_second_signal();
    }

    void progress(std::int64_t step)
    {
        status_.step = step;
        if (is_root()) { write_progress(path_, status_); }
        prepare_for_a_second_signal();
    }

    void end(ExitCode code, std::string reason, std::string hint, std::int64_t step)
    {
        status_.state = state_of(code);
        status_.exit = static_cast<int>(code);
        status_.reason = std::move(reason);
        status_.hint = std::move(hint);
        status_.step = step;
        if (is_root()) { write_status(path_, status_); }
        signals_.set_last_words("", "", "");  // this was the last word
    }

    void failed(const std::exception& error, std::int64_t step)
    {
        if (dynamic_cast<const CutOffError*>(&error) != nullptr) { return; }  // the one that failed says why
        const auto* known = dynamic_cast<const Error*>(&error);
        ExitCode code = known != nullptr ? known->exit_code() : ExitCode::failed;
        if (dynamic_cast<const FormatError*>(&error) != nullptr) { code = ExitCode::fatal; }
        const auto [text, hint] = split_hint(error.what());
        end(code, reason_of(text), hint, step);
        if (is_root()) { return; }
        // When all fail alike, rank 0 has said so by now.
        std::this_thread::sleep_for(std::chrono::milliseconds(300));
        if (read_status(path_).state == RunState::running) { write_status(path_, status_); }
    }

  private:
    bool is_root() const { return world_.rank() == 0; }

    std::string reason_of(const std::string& text) const
    {
        if (world_.size() == 1) { return text; }
        return fmt::format("rank {} ({}): {}", world_.rank(), describe(world_.activity().record()), text);
    }

    /// Rank 0 has a status ready that a signal handler only needs to write.
    void prepare_for_a_second_signal() const
    {
        if (!is_root())
        {
            signals_.set_last_words("", "", "");
            return;
        }
        RunStatus end = status_;
        end.state = RunState::failed;
        end.exit = static_cast<int>(ExitCode::failed);
        end.reason = "a second SIGINT or SIGTERM (ended at once, nothing was saved)";
        end.hint = "start again with the same command to continue from the last checkpoint";
        signals_.set_last_words(fmt::format("plimsoll-train: {}. {}\n", end.reason, end.hint), path_, status_text(end));
    }

    std::string path_;
    Communicator& world_;
    const StopSignals& signals_;
    RunStatus status_;
};

/// From here on the directory's files speak of this start. The plan says which, so that a measurement is compared with its own.
void begin_attempt(RunDirectory& directory, const nn::TrainSetup& setup)
{
    directory.begin_attempt();
    directory.write_snapshot(setup.snapshot);
    nlohmann::ordered_json plan = memory_plan_json(setup.memory, setup.limit);
    plan["attempt"] = directory.attempt();
    replace_text(directory.path() + "/plan.json", plan.dump(1) + "\n");
}

/// Says that nothing is left to do and leaves the files of the run as they are, but for a status that a killed start left behind.
void finished_already(const nn::TrainSetup& setup, const nn::ResumeChoice& choice, const Options& options, Communicator& world,
                      Log& log)
{
    if (world.rank() != 0) { return; }
    for (const std::string& warning : choice.warnings) { log.warning(warning); }
    nn::TrainReport report;
    report.already_finished = true;
    report.step = choice.step;
    report.total_steps = setup.plan.total_steps;
    report.consumed_tokens = choice.consumed_tokens;
    print_end(log, setup, report);
    if (options.json) { print_json(setup, report); }
    const std::string path = setup.config.run.dir + "/status.json";
    if (!std::filesystem::exists(path)) { return; }
    RunStatus status = read_status(path);
    if (status.state == RunState::done) { return; }
    status.state = RunState::done;
    status.exit = 0;
    status.reason = "the run was finished already";
    status.hint.clear();
    status.step = choice.step;
    write_status(path, status);
}

ExitCode train(const nn::TrainSetup& setup, const nn::RankResources& rank, const Options& options, Communicator& world, Log& log)
{
    const bool root = world.rank() == 0;
    std::unique_ptr<RunDirectory> directory;
    agree(world, [&] { if (root) { directory = std::make_unique<RunDirectory>(setup.config.run.dir); } });
    const nn::ResumeChoice choice = nn::choose_resume_together(setup, world);
    if (!choice.step_dir.empty() && choice.step >= setup.plan.total_steps)
    {
        finished_already(setup, choice, options, world, log);
        return ExitCode::done;
    }
    agree(world, [&] { if (root) { begin_attempt(*directory, setup); } });
    const std::string attempt = broadcast_bytes(world, root ? std::to_string(directory->attempt()) : "", 0);
    if (world.size() > 1) { world.activity().write_to(setup.config.run.dir + "/ranks"); }
    const StopSignals signals(setup.config.run.signal_usr1 ? Usr1::stops : Usr1::untouched);
    StatusKeeper status(setup.config.run.dir + "/status.json", world, std::stoi(attempt), choice.step, signals);
    nn::Trainer trainer(setup, world, directory.get(), log, static_cast<int>(rank.threads));
    trainer.on_progress([&](std::int64_t step) { status.progress(step); });
    try
    {
        const nn::TrainReport report = trainer.run(choice, signals);
        status.end(report.exit, report.reason, report.hint, report.step);
        if (root)
        {
            print_end(log, setup, report);
            if (options.json) { print_json(setup, report); }
        }
        return report.exit;
    }
    catch (const std::exception& error)
    {
        try
        {
            status.failed(error, trainer.step());
        }
        catch (const IoError& unwritten)
        {
            log.warning(unwritten.what());  // the error that ends the run matters more
        }
        throw;
    }
}

/// A damaged shard or checkpoint stays damaged: a restart would end the same way.
template<class Body>
ExitCode with_fatal_format_errors(const Body& body)
{
    return exit_as<FormatError>(ExitCode::fatal, body);
}

ExitCode run(const Options& options, const Invocation& invocation)
{
    if (options.config.run.device == "cuda") { require_cuda_plugin(); }
    const std::string snapshot = invocation.options->snapshot();
    if (options.dry_run)
    {
        if (!read_launch().is_first()) { return ExitCode::done; }  // one process says it for all
        return with_fatal_format_errors(
            [&]
            {
                Log log(stderr);
                const std::int64_t world = std::max(read_launch().world, nn::smallest_world(options.config));
                const nn::TrainSetup setup = nn::prepare_training(options.config, options.train, snapshot,
                                                                  resources_of_rank(options.config, world));
                describe_run(log, setup);
                return dry_run(setup, log);
            });
    }
    MpiOptions mpi;
    mpi.watchdog_s = options.config.run.watchdog_s;
    return run_with_mpi(
        [&](Communicator& world)
        {
            return with_fatal_format_errors(
                [&]
                {
                    Log log(world.rank() == 0 ? stderr : nullptr);
                    const nn::RankResources rank = resources_of_rank(options.config, world.size());
                    const nn::TrainSetup setup = nn::prepare_training(options.config, options.train, snapshot, rank);
                    describe_run(log, setup);
                    return train(setup, rank, options, world, log);
                });
        },
        mpi);
}

}  // namespace

int main(int argc, char** argv)
{
    Options options;
    ToolSpec tool;
    tool.name = "plimsoll-train";
    tool.summary = "trains a language model inside a memory budget";
    Command command;
    command.sections = {"run", "model", "layout", "data", "train", "eval", "checkpoint", "cluster"};
    command.required = {"model.name", "data.seq-len", "train.lr"};
    command.examples = {
        "plimsoll-train --config jobs/demo.ini",
        "mpiexec -n 2 plimsoll-train --config jobs/demo.ini --tp 2",
        "plimsoll-train --config jobs/demo.ini --dry-run",
        "plimsoll-train --config jobs/demo.ini --steps 200 --lr 3e-4 --run.name second",
        "plimsoll-train --config jobs/demo.ini --stop-at-step 40        # exit 75; the same command goes on",
    };
    command.declare = [&](OptionSet& set) { declare(set, options); };
    command.validate = [&] { validate(options); };
    command.run = [&](const Invocation& invocation) { return run(options, invocation); };
    tool.commands = {command};
    return run_tool(argc, argv, tool);
}
