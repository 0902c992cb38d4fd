#include <algorithm>

#include "base/error.hpp"
#include "base/text_layout.hpp"
#include "base/units.hpp"
#include "page.hpp"
#include "terminal_chart.hpp"

namespace plimsoll
{

namespace
{

bool has_numbers(const Curve& curve) { return curve.count() > 0; }

/// Whatever a run's name holds, a terminal gets no control characters.
std::string printable(const std::string& text)
{
    std::string out = text;
    for (char& c : out)
    {
        if (static_cast<unsigned char>(c) < 0x20 || c == '\x7f') { c = '?'; }
    }
    return out;
}

std::string chart_block(const std::string& title, const RunSummary& run, const Curve& curve, AxisScale scale,
                        Glyphs glyphs, int width, int rows)
{
    if (!has_numbers(curve)) { return ""; }
    std::string text = "\n" + title + "\n";
    const ChartAxis x = make_step_axis(run.first_step, run.last_step, std::max(3, width / 14));
    for (const std::string& line : curve_lines(curve, x, scale, glyphs, width, rows)) { text += line + "\n"; }
    return text;
}

std::string facts_block(const RunFacts& facts, std::size_t width)
{
    std::size_t label = 0, value = 0;
    for (const Fact& fact : facts.facts)
    {
        label = std::max(label, fact.label.size());
        value = std::max(value, fact.value.size());
    }
    std::string text;
    for (const Fact& fact : facts.facts)
    {
        std::string line = fmt::format("{:<{}}   {:>{}}", fact.label, label, fact.value, value);
        if (!fact.note.empty() && line.size() + 3 + fact.note.size() <= width) { line += "   " + fact.note; }
        else if (!fact.note.empty()) { line += "\n" + std::string(label + 3, ' ') + fact.note; }
        text += line + "\n";
    }
    return text;
}

std::string phases_block(const RunSummary& run, Glyphs glyphs, int width)
{
    if (run.phase_buckets.empty()) { return ""; }
    std::vector<double> sums(run.phases.size());
    double whole = 0;
    std::int64_t steps = 0;
    std::size_t label = 0;
    for (const PhaseBucket& bucket : run.phase_buckets)
    {
        steps += bucket.count;
        for (std::size_t k = 0; k < sums.size(); ++k) { sums[k] += bucket.phase_seconds[k]; }
    }
    for (const double sum : sums) { whole += sum; }
    for (const std::string& phase : run.phases) { label = std::max(label, phase.size()); }
    std::string text = "\ntime of a step\n";
    const int room = std::clamp(width - static_cast<int>(label) - 27, 8, 60);
    for (std::size_t k = 0; k < sums.size(); ++k)
    {
        const double share = whole > 0 ? sums[k] / whole : 0;
        text += fmt::format("{:<{}}   {}  {:>5.1f} %   {:>9}\n", printable(run.phases[k]), label,
                            share_bar(share, room, glyphs), 100 * share,
                            fmt::format("{:.2f} ms", 1e3 * sums[k] / static_cast<double>(steps)));
    }
    return text;
}

std::string measured_text(const std::vector<MemoryCategory>& categories, const std::string& name)
{
    for (const MemoryCategory& category : categories)
    {
        if (category.name == name) { return memory_text(category.bytes); }
    }
    return "-";
}

std::string memory_block(const RunSummary& run, Glyphs glyphs, int width)
{
    const PlanRank* plan = run.largest_plan();
    if (plan == nullptr) { return ""; }
    std::size_t label = std::string("category").size();
    std::int64_t largest = std::max<std::int64_t>(plan->peak_bytes, 1);
    for (const MemoryCategory& category : plan->categories)
    {
        label = std::max(label, shown_width(category.name));
        largest = std::max(largest, category.bytes);
    }
    const int room = std::clamp(width - static_cast<int>(label) - 29, 8, 50);
    std::string text = fmt::format("\nmemory of rank {}\n{:<{}}   {:>10}  {:>10}\n", plan->rank, "category", label,
                                   "planned", "measured");
    const auto line = [&](const std::string& name, std::int64_t bytes, const std::string& measured)
    {
        const double share = static_cast<double>(bytes) / static_cast<double>(largest);
        const std::string padded = printable(name) + std::string(label - shown_width(name), ' ');
        std::string row = fmt::format("{}   {:>10}  {:>10}   {}", padded, memory_text(bytes), measured,
                                      share_bar(share, room, glyphs));
        row.erase(row.find_last_not_of(' ') + 1);
        text += row + "\n";
    };
    for (const MemoryCategory& category : plan->categories)
    {
        if (category.bytes > 0)
        {
            line(category.name, category.bytes, measured_text(run.peak_by_category, category.name));
        }
    }
    line("peak", plan->peak_bytes, run.peak_bytes > 0 ? memory_text(run.peak_bytes) : "-");
    return text;
}

}  // namespace

std::string text_page(const RunSummary& run, const RunFacts& facts, const ReportStyle& style, Glyphs glyphs, int width)
{
    std::string text = printable(run.name);
    for (const std::string& part : {run.model, run.layout, run.precision})
    {
        if (!part.empty()) { text += "   " + printable(part); }
    }
    text += "\n\n" + facts_block(facts, static_cast<std::size_t>(width));
    const AxisScale loss_scale = loss_scale_of(run, style);
    const std::string unit = loss_scale == AxisScale::log ? ", log scale" : "";
    text += chart_block("loss, nats per token" + unit, run, run.loss, loss_scale, glyphs, width, 12);
    text += chart_block("validation loss" + unit, run, run.validation, loss_scale, glyphs, width, 6);
    text += chart_block("tokens per second", run, run.tokens_per_second, AxisScale::linear, glyphs, width, 6);
    text += phases_block(run, glyphs, width) + memory_block(run, glyphs, width);
    if (!facts.notes.empty()) { text += "\n"; }
    for (const std::string& note : facts.notes) { text += "note: " + printable(note) + "\n"; }
    return text + "\n" + printable(facts.verdict) + "\n";
}

}  // namespace plimsoll
