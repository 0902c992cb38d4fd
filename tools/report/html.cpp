#include <cmath>

#include "base/error.hpp"
#include "base/run_tool.hpp"
#include "base/units.hpp"
#include "page.hpp"

namespace plimsoll
{

namespace
{

constexpr const char* style_sheet = R"css(
:root{--ink:#1c2733;--soft:#5b6875;--line:#dde3e8;--back:#fff;--card:#f6f8fa;--good:#0b7a4b;--busy:#0062a3;--warning:#9a5b00;--bad:#b3261e}
*{box-sizing:border-box}
body{margin:0;background:var(--back);color:var(--ink);font:16px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1080px;margin:0 auto;padding:16px}
h1{font-size:1.5rem;margin:0;overflow-wrap:anywhere}
h2{font-size:1.05rem;margin:0 0 4px}
p{margin:4px 0}
.under{color:var(--soft);font-size:.9rem;overflow-wrap:anywhere}
.verdict{border-left:6px solid;padding:8px 12px;margin:12px 0;background:var(--card);overflow-wrap:anywhere}
.verdict.good{border-color:var(--good)}.verdict.busy{border-color:var(--busy)}
.verdict.warning{border-color:var(--warning)}.verdict.bad{border-color:var(--bad)}
.facts{display:grid;grid-template-columns:repeat(auto-fill,minmax(150px,1fr));gap:8px;margin:12px 0;padding:0}
.facts div{background:var(--card);border-radius:6px;padding:8px 10px}
.facts dt{color:var(--soft);font-size:.8rem}
.facts dd{margin:0;font-size:1.2rem;font-variant-numeric:tabular-nums;overflow-wrap:anywhere}
.facts small{display:block;color:var(--soft);font-size:.78rem}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,420px),1fr));gap:20px 24px;margin:16px 0}
figure{margin:0;break-inside:avoid}
figcaption{font-size:.86rem;color:var(--soft)}
figcaption span{white-space:nowrap;margin-right:12px}
i{display:inline-block;width:12px;height:12px;border-radius:2px;margin-right:5px;vertical-align:-1px;-webkit-print-color-adjust:exact;print-color-adjust:exact}
svg{display:block;width:100%;height:auto;font-family:inherit}
.tick{font-size:12px;fill:#5b6875}.mark{font-size:12px;fill:#7a5195}.name{font-size:13px;fill:#1c2733}
.grid{stroke:#e6ebef;stroke-width:1}.axis{stroke:#8a96a1;stroke-width:1}
.attempt{stroke:#7a5195;stroke-width:1;stroke-dasharray:3 3}
.limit{stroke:#b3261e;stroke-width:1.5;stroke-dasharray:6 3}
.curve{fill:none;stroke-width:1.8;stroke-linejoin:round}.thin{fill:none;stroke-width:1.2}
.fault{stroke:#b3261e;stroke-width:1.6;fill:none}
.tip{fill:#1c2733;fill-opacity:0}.tip:hover{fill-opacity:.08}
section{margin:20px 0}
.scroll{overflow-x:auto}
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{padding:4px 14px 4px 0;text-align:right;border-bottom:1px solid var(--line);white-space:nowrap}
th{color:var(--soft);font-weight:600}
th:first-child,td:first-child,.words{text-align:left}
.words{white-space:normal;overflow-wrap:anywhere}
ul{margin:4px 0;padding-left:20px}
footer{color:var(--soft);font-size:.8rem;border-top:1px solid var(--line);padding-top:8px;margin-top:24px}
@media print{body{font-size:11pt}main{max-width:none;padding:0}.charts{grid-template-columns:1fr 1fr}.facts{grid-template-columns:repeat(4,1fr)}.verdict,.facts div{-webkit-print-color-adjust:exact;print-color-adjust:exact}}
)css";

std::string swatch(std::size_t color, const std::string& text)
{
    return fmt::format("<span><i style=\"background:{}\"></i>{}</span>", series_color(color), escape_html(text));
}

std::string figure(const std::string& title, const std::string& picture, const std::string& caption)
{
    return fmt::format("<figure>\n<h2>{}</h2>\n{}<figcaption>{}</figcaption>\n</figure>\n", escape_html(title), picture,
                       caption);
}

bool has_values(const Curve& curve) { return curve.count() + curve.not_finite() > 0; }

std::string plain(double value) { return short_number(value); }
std::string three_digits(double value) { return fmt::format("{:.3g}", value); }
std::string grouped(double value) { return format_grouped(std::llround(value)); }

/// Rows of cells; the first row is the head. Cells are escaped here.
std::string table(const std::vector<std::vector<std::string>>& rows)
{
    std::string html = "<div class=\"scroll\"><table>\n";
    for (std::size_t k = 0; k < rows.size(); ++k)
    {
        const std::string tag = k == 0 ? "th" : "td";
        html += "<tr>";
        for (const std::string& cell : rows[k]) { html += fmt::format("<{0}>{1}</{0}>", tag, escape_html(cell)); }
        html += "</tr>\n";
    }
    return html + "</table></div>\n";
}

std::string section(const std::string& title, const std::string& body)
{
    return fmt::format("<section>\n<h2>{}</h2>\n{}</section>\n", escape_html(title), body);
}

std::string facts_block(const RunFacts& facts)
{
    std::string html = "<dl class=\"facts\">\n";
    for (const Fact& fact : facts.facts)
    {
        html += fmt::format("<div><dt>{}</dt><dd>{}{}</dd></div>\n", escape_html(fact.label), escape_html(fact.value),
                            fact.note.empty() ? "" : "<small>" + escape_html(fact.note) + "</small>");
    }
    return html + "</dl>\n";
}

std::string loss_figure(const RunSummary& run, const ReportStyle& style)
{
    LineChart chart;
    chart.label = "loss over steps";
    chart.scale = loss_scale_of(run, style);
    chart.number = loss_text;
    chart.lines.push_back({"loss", &run.loss, 0, LineMark::line});
    std::string caption = swatch(0, "training " + loss_text(run.loss.last_value()));
    if (has_values(run.validation))
    {
        chart.lines.push_back({"validation", &run.validation, 1, LineMark::points});
        caption += swatch(1, "validation " + loss_text(run.validation.last_value()));
    }
    caption += chart.scale == AxisScale::log ? "nats per token, log scale" : "nats per token";
    return figure("Loss", line_chart(chart, run.attempts), caption);
}

std::string curve_figure(const std::string& title, const Curve& curve, const RunSummary& run, std::size_t color,
                         const std::string& caption, std::string (*number)(double), AxisScale scale = AxisScale::linear,
                         double limit = 0)
{
    if (!has_values(curve)) { return ""; }
    LineChart chart;
    chart.label = title + " over steps";
    chart.number = number;
    chart.scale = scale;
    chart.from_zero = scale == AxisScale::linear;
    chart.limit = limit;
    chart.lines.push_back({title, &curve, color, LineMark::line});
    return figure(title, line_chart(chart, run.attempts), escape_html(caption));
}

std::string phases_figure(const RunSummary& run)
{
    if (run.phase_buckets.empty()) { return ""; }
    std::vector<double> sums(run.phases.size());
    double whole = 0;
    for (const PhaseBucket& bucket : run.phase_buckets)
    {
        for (std::size_t k = 0; k < sums.size(); ++k) { sums[k] += bucket.phase_seconds[k]; }
    }
    for (const double sum : sums) { whole += sum; }
    std::string caption;
    for (std::size_t k = 0; k < sums.size(); ++k)
    {
        caption += swatch(k, fmt::format("{} {:.1f} %", run.phases[k], whole > 0 ? 100 * sums[k] / whole : 0));
    }
    // Milliseconds where the axis would count in hundredths.
    const bool milli = longest_step(run) < 0.1;
    return figure(milli ? "Time of a step, ms" : "Time of a step, s", phase_chart(run, milli ? 1e-3 : 1), caption);
}

StackRow stack_row(const std::string& label, std::int64_t total, const std::vector<MemoryCategory>& categories,
                   std::vector<std::string>& names)
{
    StackRow row = {label, memory_text(total), {}};
    for (const MemoryCategory& category : categories)
    {
        if (category.bytes <= 0) { continue; }
        std::size_t color = 0;
        while (color < names.size() && names[color] != category.name) { ++color; }
        if (color == names.size()) { names.push_back(category.name); }
        row.parts.push_back({category.name, static_cast<double>(category.bytes), color});
    }
    if (row.parts.empty()) { row.parts.push_back({"all", static_cast<double>(total), 7}); }
    return row;
}

std::int64_t bytes_of(const std::vector<MemoryCategory>& categories, const std::string& name)
{
    for (const MemoryCategory& category : categories)
    {
        if (category.name == name) { return category.bytes; }
    }
    return -1;
}

std::string plan_figure(const RunSummary& run)
{
    const PlanRank* plan = run.largest_plan();
    std::vector<StackRow> rows;
    std::vector<std::string> names;
    if (plan != nullptr)
    {
        rows.push_back(stack_row(run.plan.size() > 1 ? fmt::format("planned, rank {}", plan->rank) : "planned",
                                 plan->peak_bytes, plan->categories, names));
    }
    if (run.peak_bytes > 0) { rows.push_back(stack_row("measured", run.peak_bytes, run.peak_by_category, names)); }
    if (rows.empty()) { return ""; }
    std::string caption;
    for (std::size_t k = 0; k < names.size(); ++k) { caption += swatch(k, names[k]); }
    if (plan == nullptr) { caption += "no plan.json in the run directory"; }
    return figure("Peak memory of a rank", stack_chart("planned and measured memory", rows), caption);
}

std::string memory_section(const RunSummary& run)
{
    const PlanRank* plan = run.largest_plan();
    if (plan == nullptr && run.peak_by_category.empty()) { return ""; }
    std::vector<std::vector<std::string>> rows = {{"category", "planned", "measured", "difference"}};
    const auto add = [&rows](const std::string& name, std::int64_t planned, std::int64_t measured)
    {
        if (planned <= 0 && measured <= 0) { return; }
        rows.push_back({name, planned < 0 ? "-" : memory_text(planned), measured < 0 ? "-" : memory_text(measured),
                        planned > 0 && measured >= 0
                            ? deviation_text(static_cast<double>(measured), static_cast<double>(planned))
                            : "-"});
    };
    if (plan != nullptr)
    {
        for (const MemoryCategory& category : plan->categories)
        {
            add(category.name, category.bytes, bytes_of(run.peak_by_category, category.name));
        }
    }
    for (const MemoryCategory& category : run.peak_by_category)
    {
        if (plan == nullptr || bytes_of(plan->categories, category.name) < 0)
        {
            add(category.name, -1, category.bytes);
        }
    }
    add("peak", plan == nullptr ? -1 : plan->peak_bytes, run.peak_bytes > 0 ? run.peak_bytes : -1);
    std::string body = table(rows);
    if (run.plan.size() > 1)
    {
        std::vector<std::vector<std::string>> ranks = {{"rank", "planned peak"}};
        for (const PlanRank& rank : run.plan)
        {
            if (ranks.size() > 64) { break; }
            ranks.push_back({fmt::format("{}", rank.rank), memory_text(rank.peak_bytes)});
        }
        body += table(ranks);
        if (run.plan.size() > 64)
        {
            body += fmt::format("<p class=\"under\">{} more ranks in plan.json</p>\n", run.plan.size() - 64);
        }
    }
    return section("Memory, plan against measurement", body);
}

std::string attempts_section(const RunSummary& run)
{
    constexpr std::size_t most = 50;
    std::vector<std::vector<std::string>> rows = {
        {"attempt", "steps", "done again later", "first row (UTC)", "last row (UTC)"}};
    const std::size_t from = run.attempts.size() > most ? run.attempts.size() - most : 0;
    for (std::size_t k = from; k < run.attempts.size(); ++k)
    {
        const RunAttempt& attempt = run.attempts[k];
        rows.push_back({fmt::format("{}", attempt.number),
                        fmt::format("{} to {}", format_grouped(attempt.first_step), format_grouped(attempt.last_step)),
                        attempt.repeated > 0 ? format_grouped(attempt.repeated) : "-", attempt.begin.substr(0, 19),
                        attempt.end.substr(0, 19)});
    }
    std::string body = table(rows);
    if (from > 0) { body += fmt::format("<p class=\"under\">{} earlier attempts are not listed</p>\n", from); }
    return section("Attempts", body);
}

std::string checkpoints_section(const RunSummary& run)
{
    if (run.checkpoints.empty()) { return ""; }
    std::vector<std::vector<std::string>> rows = {
        {"step", "size", "time", "rate", "saved at (UTC)", "attempt", "still there"}};
    for (auto save = run.checkpoints.rbegin(); save != run.checkpoints.rend(); ++save)
    {
        rows.push_back({format_grouped(save->step), format_storage(static_cast<double>(save->bytes)),
                        spoken_seconds(save->seconds),
                        save->seconds > 0 ? format_rate(static_cast<double>(save->bytes) / save->seconds) : "-",
                        save->time.substr(0, 19), fmt::format("{}", save->attempt), save->on_disk ? "yes" : "no"});
    }
    std::string body = table(rows);
    const std::int64_t more = run.num_checkpoints - static_cast<std::int64_t>(run.checkpoints.size());
    if (more > 0)
    {
        body += fmt::format("<p class=\"under\">{} earlier saves are not listed</p>\n", format_grouped(more));
    }
    return section("Checkpoints", body);
}

std::string changes_section(const RunSummary& run)
{
    if (run.changes.empty()) { return ""; }
    std::string body =
        "<div class=\"scroll\"><table>\n<tr><th>after</th><th class=\"words\">setting</th><th class=\"words\">from</th>"
        "<th class=\"words\">to</th></tr>\n";
    for (const RunChange& change : run.changes)
    {
        body += fmt::format("<tr><td>run.ini.{}</td><td class=\"words\">{}</td><td class=\"words\">{}</td><td "
                            "class=\"words\">{}</td></tr>\n",
                            change.snapshot, escape_html(change.change.key), escape_html(change.change.old_value),
                            escape_html(change.change.new_value));
    }
    return section("Settings changed between starts", body + "</table></div>\n");
}

std::string notes_block(const RunFacts& facts)
{
    if (facts.notes.empty()) { return ""; }
    std::string html = "<ul>\n";
    for (const std::string& note : facts.notes) { html += "<li>" + escape_html(note) + "</li>\n"; }
    return html + "</ul>\n";
}

std::string under_title(const RunSummary& run)
{
    std::string text;
    for (const std::string& part : {run.model, run.layout, run.precision})
    {
        if (!part.empty()) { text += (text.empty() ? "" : "   ·   ") + part; }
    }
    return text;
}

std::string tone_class(Tone tone)
{
    switch (tone)
    {
        case Tone::good: return "good";
        case Tone::busy: return "busy";
        case Tone::warning: return "warning";
        case Tone::bad: return "bad";
    }
    return "bad";
}

std::string charts(const RunSummary& run, const ReportStyle& style)
{
    const PlanRank* plan = run.largest_plan();
    const double planned = plan == nullptr ? 0 : static_cast<double>(plan->peak_bytes);
    const AxisScale norm_scale = choose_scale(run.grad_norm.minimum(), run.grad_norm.maximum());
    std::string html = "<div class=\"charts\">\n" + loss_figure(run, style);
    html += curve_figure("Tokens per second", run.tokens_per_second, run, 2,
                         fmt::format("median {}", grouped(run.median_tokens_per_second)), grouped);
    html += curve_figure("Gradient norm", run.grad_norm, run, 6,
                         norm_scale == AxisScale::log ? "before clipping, log scale" : "before clipping", three_digits,
                         norm_scale);
    html += curve_figure("Learning rate", run.lr, run, 4, "", three_digits);
    html += phases_figure(run);
    html += plan_figure(run);
    html += curve_figure("Peak memory of each step, MiB", run.peak_mib, run, 5,
                         planned > 0 ? fmt::format("dashed: the plan, {}", memory_text(plan->peak_bytes)) : "", plain,
                         AxisScale::linear, planned / 1048576.0);
    return html + "</div>\n";
}

}  // namespace

AxisScale loss_scale_of(const RunSummary& run, const ReportStyle& style)
{
    double low = run.loss.minimum(), high = run.loss.maximum();
    if (run.validation.count() > 0)
    {
        low = std::min(low, run.validation.minimum());
        high = std::max(high, run.validation.maximum());
    }
    if (style.loss_scale == "linear" || low <= 0) { return AxisScale::linear; }
    return style.loss_scale == "log" ? AxisScale::log : choose_scale(low, high);
}

std::string html_page(const RunSummary& run, const RunFacts& facts, const ReportStyle& style, const std::string& made)
{
    std::string html = "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
                       "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n";
    html += fmt::format("<title>{} ({})</title>\n<style>{}</style>\n</head>\n<body>\n<main>\n", escape_html(run.name),
                        escape_html(facts.state), style_sheet);
    html += fmt::format("<header>\n<h1>{}</h1>\n<p class=\"under\">{}</p>\n</header>\n", escape_html(run.name),
                        escape_html(under_title(run)));
    html += fmt::format("<p class=\"verdict {}\"><strong>{}</strong></p>\n", tone_class(facts.tone),
                        escape_html(facts.verdict));
    html += facts_block(facts) + notes_block(facts) + charts(run, style);
    html += memory_section(run) + attempts_section(run) + checkpoints_section(run) + changes_section(run);
    html += fmt::format("<footer>{} · plimsoll-report {} · {}</footer>\n</main>\n</body>\n</html>\n",
                        escape_html(run.path), escape_html(version_with_build()), escape_html(made));
    return html;
}

}  // namespace plimsoll
