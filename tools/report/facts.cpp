#include "facts.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.hpp"
#include "base/units.hpp"

namespace plimsoll
{

namespace
{

std::string plural(std::int64_t number, const std::string& noun)
{
    return fmt::format("{} {}{}", format_grouped(number), noun, number == 1 ? "" : "s");
}

std::string step_text(const RunSummary& run)
{
    if (run.total_steps <= 0) { return plural(run.last_step, "step"); }
    return fmt::format("{} of {}", format_grouped(run.last_step), plural(run.total_steps, "step"));
}

std::string loss_course(const RunSummary& run)
{
    return fmt::format("loss {} to {}", loss_text(run.loss.first_value()), loss_text(run.loss.last_value()));
}

std::string running_verdict(const RunSummary& run, double now)
{
    std::string text = fmt::format("running: {}", step_text(run));
    const double mean =
        run.step_seconds / static_cast<double>(std::max<std::int64_t>(run.loss.count() + run.loss.not_finite(), 1));
    if (run.total_steps > run.last_step && mean > 0)
    {
        text +=
            fmt::format(", about {} left", spoken_seconds(mean * static_cast<double>(run.total_steps - run.last_step)));
    }
    const std::optional<double> last = seconds_of_utc(run.last_time);
    if (last && now >= *last) { text += fmt::format(", last row {} before this report", spoken_seconds(now - *last)); }
    return text;
}

void judge_failed(RunFacts& facts, const RunSummary& run)
{
    facts.state = "failed";
    facts.tone = Tone::bad;
    facts.verdict =
        fmt::format("failed with exit {} after {}: {}", run.status->exit, step_text(run), run.status->reason);
    if (!run.status->hint.empty()) { facts.verdict += ". " + run.status->hint; }
}

void judge(RunFacts& facts, const RunSummary& run, double now)
{
    if (!run.status)
    {
        facts.state = "unknown";
        facts.tone = Tone::warning;
        facts.verdict = fmt::format("unknown: {} are there, but no status.json", step_text(run));
        return;
    }
    const RunStatus& status = *run.status;
    if (run.process_gone)
    {
        facts.state = "killed";
        facts.tone = Tone::bad;
        facts.verdict = fmt::format("killed after {}: status.json says running, but process {} is gone. start the same "
                                    "command again to continue",
                                    step_text(run), status.process);
        return;
    }
    switch (status.state)
    {
        case RunState::running:
            facts.state = "running";
            facts.tone = Tone::busy;
            facts.verdict = running_verdict(run, now);
            return;
        case RunState::done:
            facts.state = "finished";
            facts.verdict = fmt::format("finished: {}, {}", step_text(run), loss_course(run));
            return;
        case RunState::stopped:
            facts.state = "stopped";
            facts.tone = Tone::warning;
            facts.verdict = fmt::format("stopped after {} ({}){}", step_text(run), status.reason,
                                        status.hint.empty() ? "" : ". " + status.hint);
            return;
        case RunState::failed: judge_failed(facts, run); return;
    }
}

Fact validation_fact(const RunSummary& run)
{
    Fact fact = {"validation loss", "-", "no validation yet"};
    const Curve& curve = run.validation;
    if (curve.count() + curve.not_finite() == 0) { return fact; }
    fact.value = loss_text(curve.last_value());
    fact.note = fmt::format("perplexity {:.4g}", std::exp(curve.last_value()));
    if (run.bits_per_byte > 0) { fact.note += fmt::format(", {:.2f} bits/byte", run.bits_per_byte); }
    if (run.best_validation_step != curve.last_value_step() && std::isfinite(run.best_validation))
    {
        fact.note += fmt::format(", best {} at step {}", loss_text(run.best_validation),
                                 format_grouped(run.best_validation_step));
    }
    return fact;
}

Fact checkpoint_fact(const RunSummary& run)
{
    Fact fact = {"checkpoints saved", format_grouped(run.num_checkpoints), ""};
    if (run.checkpoints.empty()) { return fact; }
    fact.note = fmt::format("{} each, {} in all", format_storage(static_cast<double>(run.checkpoints.back().bytes)),
                            spoken_seconds(run.checkpoint_seconds));
    return fact;
}

Fact peak_fact(const RunSummary& run)
{
    Fact fact = {"peak memory", run.peak_bytes > 0 ? memory_text(run.peak_bytes) : "-", ""};
    const PlanRank* plan = run.largest_plan();
    if (plan == nullptr) { fact.note = "no plan.json to compare with"; }
    else if (run.peak_bytes > 0)
    {
        fact.note =
            fmt::format("planned {} ({})", memory_text(plan->peak_bytes),
                        deviation_text(static_cast<double>(run.peak_bytes), static_cast<double>(plan->peak_bytes)));
    }
    else { fact.note = fmt::format("planned {}", memory_text(plan->peak_bytes)); }
    if (run.plan_attempt > 0 && run.attempts.size() > 1) { fact.note += fmt::format(", attempt {}", run.plan_attempt); }
    return fact;
}

void add_facts(RunFacts& facts, const RunSummary& run)
{
    const std::string steps =
        run.total_steps > 0 ? fmt::format("{} of {}", format_grouped(run.last_step), format_grouped(run.total_steps))
                            : format_grouped(run.last_step);
    facts.facts.push_back({"steps", steps,
                           run.total_steps > 0 ? fmt::format("{:.0f} %", 100.0 * static_cast<double>(run.last_step) /
                                                                             static_cast<double>(run.total_steps))
                                               : ""});
    facts.facts.push_back({"tokens", run.tokens > 0 ? format_count(static_cast<double>(run.tokens)) : "-", ""});
    facts.facts.push_back(
        {"loss", loss_text(run.loss.last_value()),
         fmt::format("first {} at step {}", loss_text(run.loss.first_value()), format_grouped(run.first_step))});
    facts.facts.push_back(validation_fact(run));
    facts.facts.push_back(
        {"tokens/s", format_grouped(std::llround(run.median_tokens_per_second)), "median over steps"});
    facts.facts.push_back({"time in steps", spoken_seconds(run.step_seconds), ""});
    facts.facts.push_back(peak_fact(run));
    facts.facts.push_back(checkpoint_fact(run));
    facts.facts.push_back({"attempts", format_grouped(static_cast<std::int64_t>(run.attempts.size())),
                           run.repeated_steps > 0 ? plural(run.repeated_steps, "step") + " done again" : ""});
}

void add_notes(RunFacts& facts, const RunSummary& run)
{
    auto& notes = facts.notes;
    const PlanRank* plan = run.largest_plan();
    if (plan != nullptr && run.peak_bytes > plan->peak_bytes)
    {
        notes.push_back(
            fmt::format("the measured peak is above the plan by {}", memory_text(run.peak_bytes - plan->peak_bytes)));
    }
    if (run.loss.not_finite() > 0)
    {
        notes.push_back(fmt::format("the loss was no number in {}", plural(run.loss.not_finite(), "step")));
    }
    if (run.skipped_updates > 0)
    {
        notes.push_back(
            fmt::format("{} changed no weights (gradients that are no numbers)", plural(run.skipped_updates, "step")));
    }
    if (run.num_failed_saves > 0)
    {
        notes.push_back(
            fmt::format("{} failed; the last: {}", plural(run.num_failed_saves, "save"), run.last_failed_save));
    }
    if (run.repeated_steps > 0)
    {
        notes.push_back(
            fmt::format("{} were done again after a restart from an earlier checkpoint; only the later ones are shown",
                        plural(run.repeated_steps, "step")));
    }
    if (run.torn_lines > 0)
    {
        notes.push_back(fmt::format("{} of metrics.jsonl left out (torn by a kill or still being written)",
                                    plural(run.torn_lines, "line")));
    }
    if (run.loss.bucket_steps() > 1)
    {
        notes.push_back(fmt::format(
            "a point of a curve stands for {}: the line is their mean, the band their least and largest value",
            plural(run.loss.bucket_steps(), "step")));
    }
}

}  // namespace

RunFacts facts_of(const RunSummary& run, double now)
{
    RunFacts facts;
    judge(facts, run, now);
    add_facts(facts, run);
    add_notes(facts, run);
    return facts;
}

std::string spoken_seconds(double seconds)
{
    if (!(seconds < 1e12)) { return "-"; }
    if (seconds < 9.995) { return fmt::format("{:.2f} s", seconds); }
    if (seconds < 59.95) { return fmt::format("{:.1f} s", seconds); }
    return format_clock(seconds);
}

std::string loss_text(double loss)
{
    if (!std::isfinite(loss)) { return std::isnan(loss) ? "nan" : loss > 0 ? "inf" : "-inf"; }
    return std::fabs(loss) < 1000 ? fmt::format("{:.4f}", loss) : fmt::format("{:.2e}", loss);
}

std::string memory_text(std::int64_t bytes)
{
    double amount = static_cast<double>(bytes);
    std::size_t unit = 0;
    constexpr std::array<const char*, 5> names = {"B", "KiB", "MiB", "GiB", "TiB"};
    while (unit + 1 < names.size() && amount >= 999.95)
    {
        amount /= 1024;
        ++unit;
    }
    return fmt::format("{:.{}f} {}", amount,
                       unit == 0         ? 0
                       : amount < 9.9995 ? 3
                       : amount < 99.995 ? 2
                                         : 1,
                       names[unit]);
}

std::string deviation_text(double value, double base)
{
    if (!(base > 0)) { return "-"; }
    return fmt::format("{:+.1f} %", 100 * (value / base - 1));
}

}  // namespace plimsoll
