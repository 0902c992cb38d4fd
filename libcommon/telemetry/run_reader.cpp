#include "telemetry/run_reader.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>

#include "base/error.hpp"
#include "base/run_file.hpp"
#include "base/suggest.hpp"
#include "base/text_file.hpp"
#include "telemetry/host.hpp"
#include "telemetry/run_rows.hpp"

namespace plimsoll
{

namespace fs = std::filesystem;

namespace
{

bool exists(const std::string& path)
{
    std::error_code error;
    return fs::exists(path, error);
}

bool is_run(const std::string& path) { return exists(path + "/metrics.jsonl") || exists(path + "/status.json"); }

/// The run beside `path` whose name is nearest, or nothing.
std::string nearest_run(const std::string& path)
{
    const fs::path wanted = fs::path(path).lexically_normal();
    const fs::path folder = wanted.has_parent_path() ? wanted.parent_path() : fs::path(".");
    std::vector<std::string> names;
    for (const fs::path& where : {folder, folder / "runs"})
    {
        std::error_code error;
        for (fs::directory_iterator entry(where, error), end; !error && entry != end; entry.increment(error))
        {
            const std::string name =
                (where == folder ? entry->path().filename() : fs::path("runs") / entry->path().filename()).string();
            if (is_run(entry->path().string())) { names.push_back(name); }
        }
    }
    std::sort(names.begin(), names.end());
    const std::string nearest = nearest_name(wanted.filename().string(), names);
    if (nearest.empty()) { return ""; }
    return (wanted.has_parent_path() ? (folder / nearest).string() : nearest);
}

void check_directory(const std::string& path)
{
    std::error_code error;
    if (!fs::exists(path, error))
    {
        const std::string nearest = nearest_run(path);
        throw UsageError(fmt::format("no run '{}' (no such directory){}", path,
                                     nearest.empty() ? "" : fmt::format(". nearest: {}", nearest)));
    }
    VALIDATE(fs::is_directory(path, error), UsageError, "'{}' is a file, not the directory of a run", path);
    VALIDATE(is_run(path), UsageError,
             "'{}' is not the directory of a run (neither metrics.jsonl nor status.json in it)", path);
}

void read_state(RunSummary& run)
{
    const std::string path = run.path + "/status.json";
    if (!exists(path)) { return; }
    run.status = read_status(path);
    const bool here = run.status->host == host_name() && run.status->process > 0;
    run.process_gone =
        run.status->state == RunState::running && here && ::kill(run.status->process, 0) != 0 && errno == ESRCH;
}

std::string value_of(const std::vector<RunFileEntry>& entries, const std::string& section, const std::string& key)
{
    std::string text;
    for (const RunFileEntry& entry : entries)
    {
        if (entry.section == section && entry.key == key) { text = entry.text; }
    }
    return text;
}

/// As the trainer counts: whole steps. 0 when the length is given in epochs.
std::int64_t total_steps_of(const std::vector<RunFileEntry>& entries)
{
    const std::string steps = value_of(entries, "train", "steps");
    if (!steps.empty()) { return parse_count(steps); }
    const std::string tokens = value_of(entries, "train", "tokens");
    const std::string batch = value_of(entries, "layout", "global-batch");
    const std::string length = value_of(entries, "data", "seq-len");
    if (tokens.empty() || batch.empty() || length.empty()) { return 0; }
    const std::int64_t per_step = parse_count(batch) * parse_count(length);
    return per_step > 0 ? parse_count(tokens) / per_step : 0;
}

void read_settings(RunSummary& run)
{
    const std::string path = run.path + "/run.ini";
    if (!exists(path)) { return; }
    std::vector<std::string> snapshots;
    for (int number = 1; exists(fmt::format("{}.{}", path, number)); ++number)
    {
        snapshots.push_back(load_text(fmt::format("{}.{}", path, number), "run file"));
    }
    snapshots.push_back(load_text(path, "run file"));
    for (std::size_t k = 0; k + 1 < snapshots.size(); ++k)
    {
        for (ConfigChange& change : compare_snapshots(snapshots[k], snapshots[k + 1]))
        {
            run.changes.push_back({static_cast<int>(k) + 1, std::move(change)});
        }
    }
    const std::vector<RunFileEntry> entries = parse_run_file(snapshots.back(), path, run.path);
    const std::string name = value_of(entries, "run", "name");
    if (!name.empty()) { run.name = name; }
    run.model = fs::path(value_of(entries, "model", "name")).stem().string();
    if (run.model == "config")
    {
        run.model = fs::path(value_of(entries, "model", "name")).parent_path().filename().string();
    }
    run.precision = value_of(entries, "train", "precision");
    for (const char* key : {"dp", "tp", "pp", "zero", "micro-batch", "global-batch"})
    {
        const std::string text = value_of(entries, "layout", key);
        if (!text.empty()) { run.layout += fmt::format("{}{} {}", run.layout.empty() ? "" : " ", key, text); }
    }
    with_context(path, [&] { run.total_steps = total_steps_of(entries); });
}

}  // namespace

const PlanRank* RunSummary::largest_plan() const
{
    const PlanRank* largest = nullptr;
    for (const PlanRank& rank : plan)
    {
        if (largest == nullptr || rank.peak_bytes > largest->peak_bytes) { largest = &rank; }
    }
    return largest;
}

RunSummary read_run(const std::string& path, const RunReadOptions& options)
{
    check_directory(path);
    RunSummary run;
    run.path = path;
    run.name = fs::absolute(path).lexically_normal().filename().string();
    if (run.name.empty()) { run.name = fs::absolute(path).lexically_normal().parent_path().filename().string(); }
    read_state(run);
    read_settings(run);
    if (exists(path + "/plan.json"))
    {
        PlanFile plan = read_plan_file(path + "/plan.json");
        run.plan = std::move(plan.ranks);
        run.plan_attempt = plan.attempt;
        if (!plan.layout.empty()) { run.layout = plan.layout; }
    }
    read_rows(run, options);
    for (RunCheckpoint& checkpoint : run.checkpoints)
    {
        checkpoint.on_disk = exists(fmt::format("{}/ckpt/step_{:08}/COMMIT", path, checkpoint.step));
    }
    return run;
}

}  // namespace plimsoll
