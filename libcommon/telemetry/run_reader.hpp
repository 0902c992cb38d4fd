#pragma once
/// Reads a run directory into figures and curves, in bounded memory whatever the length of the run.
///
/// Of a step that was done twice (a later attempt went back) the later one counts: rows at or after the step at which a later
/// attempt began are left out and counted as repeated.

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/cli.hpp"
#include "telemetry/curve.hpp"
#include "telemetry/status_file.hpp"

namespace plimsoll
{

/// One start of the run, as far as it took steps.
struct RunAttempt
{
    int number = 1;
    std::int64_t first_step = 0;
    std::int64_t last_step = 0;
    std::int64_t repeated = 0;  ///< of its steps, those that a later attempt did again
    std::string begin, end;     ///< UTC, of its first and last row; empty when a row has none
};

/// A checkpoint that was saved.
struct RunCheckpoint
{
    std::int64_t step = 0;
    int attempt = 1;
    std::int64_t bytes = 0;
    double seconds = 0;
    std::string time;      ///< UTC
    bool on_disk = false;  ///< committed and still there
};

/// Mean seconds of a step by phase, over the steps of a bucket.
struct PhaseBucket
{
    std::int64_t first_step = 0;
    std::int64_t last_step = 0;
    std::int64_t count = 0;
    double seconds = 0;                 ///< sum over its steps, of the whole step
    std::vector<double> phase_seconds;  ///< sums, in the order of RunSummary::phases
};

struct MemoryCategory
{
    std::string name;
    std::int64_t bytes = 0;
};

/// What plan.json says about one rank.
struct PlanRank
{
    std::int64_t rank = 0;
    std::vector<MemoryCategory> categories;
    std::int64_t peak_bytes = 0;
};

/// A setting that differs between two starts of the run.
struct RunChange
{
    int snapshot = 1;  ///< of run.ini.1, run.ini.2, ...: the text before the change
    ConfigChange change;
};

struct RunSummary
{
    std::string path;  ///< as given
    std::string name;  ///< [run] name, else that of the directory
    std::string model;
    std::string layout;  ///< "dp 2 tp 2 pp 1 zero 1 micro-batch 4 global-batch 32": resolved where there is a plan
    std::string precision;

    std::optional<RunStatus> status;  ///< none: no status.json
    /// status.json says running, on this machine, and that process is gone.
    bool process_gone = false;

    std::int64_t first_step = 0, last_step = 0;
    std::int64_t total_steps = 0;  ///< 0: unknown
    std::int64_t tokens = 0;       ///< consumed at the last step
    double step_seconds = 0;       ///< sum over the steps that count
    double median_tokens_per_second = 0;
    std::int64_t peak_bytes = 0;  ///< largest measured, of plan_attempt when that is known; 0: not measured
    std::vector<MemoryCategory> peak_by_category;
    std::string last_time;  ///< UTC, of the last row

    Curve loss, validation, grad_norm, lr, tokens_per_second, peak_mib;
    double best_validation = std::numeric_limits<double>::quiet_NaN();
    std::int64_t best_validation_step = 0;
    double bits_per_byte = 0;  ///< of the last validation; 0: unknown

    std::vector<std::string>
        phases;  ///< in order of appearance; the last is "other" when the parts are less than the step
    std::vector<PhaseBucket> phase_buckets;

    std::vector<RunAttempt> attempts;
    std::vector<RunCheckpoint> checkpoints;  ///< the newest, oldest first
    std::int64_t num_checkpoints = 0;
    double checkpoint_seconds = 0;
    std::int64_t num_failed_saves = 0;
    std::string last_failed_save;

    std::int64_t repeated_steps = 0;
    std::int64_t skipped_updates = 0;  ///< steps whose gradients were not applied
    std::int64_t torn_lines = 0;

    std::vector<PlanRank> plan;
    int plan_attempt = 0;  ///< the start that the plan was made for; 0: unknown
    std::vector<RunChange> changes;

    /// Rank of the plan with the largest peak; null without a plan.
    const PlanRank* largest_plan() const;
};

struct RunReadOptions
{
    std::int64_t curve_points = 400;
    std::int64_t phase_bars = 40;
    std::size_t max_checkpoints = 100;
};

/// @throws UsageError: no such run, not a run directory, no step yet; ConfigError, FormatError: a file that is broken
RunSummary read_run(const std::string& path, const RunReadOptions& options = RunReadOptions());

struct PlanFile
{
    std::vector<PlanRank> ranks;
    int attempt = 0;     ///< the start that it was made for; 0: the file does not say
    std::string layout;  ///< "dp 2 tp 2 pp 1 zero 1 micro-batch 4 global-batch 32"; empty: the file does not say
};

/// {"schema": 1, "attempt": 2, "layout": {"dp": 2, ...}, "ranks": [{"rank": 0, "categories": [{"name": "parameters", "bytes": 1}, ...], "peak_bytes": 1},
/// ...]}; other fields are ignored. @throws FormatError naming file and field
PlanFile read_plan_file(const std::string& path);

/// Seconds since 1970 of "2026-01-31T12:00:00.000Z"; none for another text.
std::optional<double> seconds_of_utc(const std::string& text);

}  // namespace plimsoll
