#include "svg.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/units.hpp"

namespace plimsoll
{

namespace
{

constexpr double width = 420, height = 228;
constexpr double left = 48, right = 410, top = 16, bottom = 206;
constexpr std::size_t max_tips = 100;
constexpr int max_step_ticks = 8;

std::string begin_svg(const std::string& label, double picture_height)
{
    return fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n", width, picture_height,
                       escape_html(label));
}

/// Where steps and values lie on the picture.
struct Frame
{
    ChartAxis x, y;

    double at_x(double step) const { return left + (right - left) * x.position(step); }
    double at_y(double value) const { return bottom - (bottom - top) * std::clamp(y.position(value), 0.0, 1.0); }
};

std::string grid(const Frame& frame)
{
    std::string svg;
    for (const AxisTick& tick : frame.y.ticks)
    {
        const double y = frame.at_y(tick.value);
        svg += fmt::format("<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", left, right, y, y);
        svg += fmt::format("<text class=\"tick\" text-anchor=\"end\" x=\"{}\" y=\"{:.1f}\">{}</text>\n", left - 6,
                           y + 4, tick.label);
    }
    for (const AxisTick& tick : frame.x.ticks)
    {
        const double x = frame.at_x(tick.value);
        svg += fmt::format("<line class=\"axis\" x1=\"{0:.1f}\" x2=\"{0:.1f}\" y1=\"{1}\" y2=\"{2}\"/>", x, bottom,
                           bottom + 4);
        svg += fmt::format("<text class=\"tick\" text-anchor=\"middle\" x=\"{:.1f}\" y=\"{}\">{}</text>\n",
                           std::min(x, width - 14), bottom + 18, tick.label);
    }
    svg += fmt::format("<line class=\"axis\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>\n", left, right, bottom, bottom);
    return svg;
}

/// Numbers stand only where there is room for them.
std::string attempt_marks(const Frame& frame, const std::vector<RunAttempt>& attempts)
{
    std::string svg;
    double free_from = left;
    for (std::size_t k = 1; k < attempts.size(); ++k)
    {
        const auto step = static_cast<double>(attempts[k].first_step);
        if (step < frame.x.low || step > frame.x.high) { continue; }
        const double x = frame.at_x(step);
        svg += fmt::format("<g><title>attempt {} begins at step {}</title>"
                           "<line class=\"attempt\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{}\" y2=\"{}\"/>",
                           attempts[k].number, format_grouped(attempts[k].first_step), x, x, top, bottom);
        if (x >= free_from)
        {
            svg += fmt::format("<text class=\"mark\" text-anchor=\"middle\" x=\"{:.1f}\" y=\"{}\">#{}</text>", x,
                               top - 4, attempts[k].number);
            free_from = x + 26;
        }
        svg += "</g>\n";
    }
    return svg;
}

/// Runs of neighbouring buckets that hold a number: a line has a gap where none does.
std::vector<std::vector<CurveBucket>> pieces_of(const Curve& curve, LineMark mark)
{
    std::vector<std::vector<CurveBucket>> pieces;
    bool open = false;
    for (const CurveBucket& bucket : curve.buckets())
    {
        if (bucket.count == 0)
        {
            open = false;
            continue;
        }
        const bool beside =
            open && (mark == LineMark::points || pieces.back().back().last_step + 1 == bucket.first_step);
        if (!beside) { pieces.emplace_back(); }
        pieces.back().push_back(bucket);
        open = true;
    }
    return pieces;
}

std::string points_text(const Frame& frame, const std::vector<CurveBucket>& piece, double (*value)(const CurveBucket&))
{
    std::string text;
    for (const CurveBucket& bucket : piece)
    {
        text += fmt::format("{}{:.1f},{:.1f}", text.empty() ? "" : " ", frame.at_x(bucket.middle()),
                            frame.at_y(value(bucket)));
    }
    return text;
}

double mean_of(const CurveBucket& bucket) { return bucket.mean(); }
double least_of(const CurveBucket& bucket) { return bucket.minimum; }
double largest_of(const CurveBucket& bucket) { return bucket.maximum; }

std::string tip(const ChartLine& line, const LineChart& chart, std::int64_t first, std::int64_t last,
                const CurveBucket& all)
{
    const std::string steps = first == last
                                  ? fmt::format("step {}", format_grouped(first))
                                  : fmt::format("steps {} to {}", format_grouped(first), format_grouped(last));
    std::string text = fmt::format("{}: {} {}", steps, line.name, chart.number(all.mean()));
    if (all.count > 1) { text += fmt::format(" ({} to {})", chart.number(all.minimum), chart.number(all.maximum)); }
    return "<title>" + escape_html(text) + "</title>";
}

std::string draw_line(const Frame& frame, const ChartLine& line)
{
    std::string svg;
    const char* color = series_color(line.color);
    for (std::vector<CurveBucket> piece : pieces_of(*line.curve, line.mark))
    {
        const std::string means = points_text(frame, piece, mean_of);
        if (line.curve->bucket_steps() > 1 && line.mark == LineMark::line)
        {
            const std::string upper = points_text(frame, piece, largest_of);
            std::reverse(piece.begin(), piece.end());
            svg += fmt::format("<polygon fill=\"{}\" fill-opacity=\"0.22\" points=\"{} {}\"/>\n", color, upper,
                               points_text(frame, piece, least_of));
        }
        if (piece.size() == 1 && line.mark == LineMark::line)
        {
            svg += fmt::format("<circle fill=\"{}\" r=\"2\" cx=\"{:.1f}\" cy=\"{:.1f}\"/>\n", color,
                               frame.at_x(piece[0].middle()), frame.at_y(piece[0].mean()));
            continue;
        }
        svg += fmt::format("<polyline class=\"{}\" stroke=\"{}\" points=\"{}\"/>\n",
                           line.mark == LineMark::line ? "curve" : "thin", color, means);
    }
    return svg;
}

/// Dots of a validation curve; crosses at the top where a value is no number.
std::string draw_marks(const Frame& frame, const ChartLine& line, const LineChart& chart)
{
    std::string svg;
    const std::vector<CurveBucket> buckets = line.curve->buckets();
    const double radius = buckets.size() > 120 ? 1.6 : 3;
    for (const CurveBucket& bucket : buckets)
    {
        const double x = frame.at_x(bucket.middle());
        if (bucket.not_finite > 0)
        {
            svg +=
                fmt::format("<path class=\"fault\" d=\"M{0:.1f} {1}l7 7m0 -7l-7 7\"><title>{2}: no number at step {3}"
                            "</title></path>\n",
                            x - 3.5, top + 2, escape_html(line.name), format_grouped(bucket.first_step));
        }
        if (line.mark != LineMark::points || bucket.count == 0) { continue; }
        svg += fmt::format("<circle fill=\"{}\" r=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\">{}</circle>\n",
                           series_color(line.color), radius, x, frame.at_y(bucket.mean()),
                           tip(line, chart, bucket.first_step, bucket.last_step, bucket));
    }
    return svg;
}

CurveBucket merged(const std::vector<CurveBucket>& buckets, std::size_t from, std::size_t to)
{
    CurveBucket all = buckets[from];
    for (std::size_t k = from + 1; k < to; ++k)
    {
        const CurveBucket& next = buckets[k];
        if (next.count == 0) { continue; }
        all.minimum = all.count == 0 ? next.minimum : std::min(all.minimum, next.minimum);
        all.maximum = all.count == 0 ? next.maximum : std::max(all.maximum, next.maximum);
        all.sum += next.sum;
        all.count += next.count;
    }
    all.last_step = buckets[to - 1].last_step;
    return all;
}

/// Invisible columns that say the figures when pointed at: a page without scripts has no other way.
std::string tips(const Frame& frame, const ChartLine& line, const LineChart& chart)
{
    const std::vector<CurveBucket> buckets = line.curve->buckets();
    const std::size_t group = (buckets.size() + max_tips - 1) / std::max<std::size_t>(max_tips, 1);
    std::string svg;
    for (std::size_t from = 0; from < buckets.size(); from += std::max<std::size_t>(group, 1))
    {
        const CurveBucket all = merged(buckets, from, std::min(from + group, buckets.size()));
        if (all.count == 0) { continue; }
        const double begin = std::max(left, frame.at_x(static_cast<double>(all.first_step) - 0.5));
        const double end = std::min(right, frame.at_x(static_cast<double>(all.last_step) + 0.5));
        svg += fmt::format("<rect class=\"tip\" x=\"{:.1f}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\">{}</rect>\n",
                           begin, top, std::max(end - begin, 0.5), bottom - top,
                           tip(line, chart, all.first_step, all.last_step, all));
    }
    return svg;
}

Frame frame_of(const LineChart& chart)
{
    double low = std::numeric_limits<double>::infinity(), high = -low;
    double first = low, last = high;
    for (const ChartLine& line : chart.lines)
    {
        const std::vector<CurveBucket> buckets = line.curve->buckets();
        if (buckets.empty()) { continue; }
        first = std::min(first, static_cast<double>(buckets.front().first_step));
        last = std::max(last, static_cast<double>(buckets.back().last_step));
        if (line.curve->count() == 0) { continue; }
        low = std::min(low, line.curve->minimum());
        high = std::max(high, line.curve->maximum());
    }
    if (chart.limit > 0) { high = std::max(high, chart.limit); }
    if (chart.from_zero) { low = std::min(low, 0.0); }
    if (!(low <= high)) { low = 0, high = 1; }
    Frame frame;
    frame.x = make_step_axis(static_cast<std::int64_t>(first), static_cast<std::int64_t>(last), max_step_ticks);
    frame.y = make_axis(low, high, 6, chart.scale);
    return frame;
}

std::string step_caption()
{
    return fmt::format("<text class=\"tick\" text-anchor=\"end\" x=\"{}\" y=\"{}\">step</text>\n", left - 6,
                       bottom + 18);
}

std::string bar(double x, double y, double bar_width, double bar_height, const char* color)
{
    return fmt::format("<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\" fill=\"{}\"/>", x, y,
                       bar_width, bar_height, color);
}

}  // namespace

const char* series_color(std::size_t k)
{
    static constexpr std::array<const char*, 8> colors = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                                          "#e69f00", "#56b4e9", "#7a5195", "#8c8c8c"};
    return colors[k % colors.size()];
}

std::string line_chart(const LineChart& chart, const std::vector<RunAttempt>& attempts)
{
    const Frame frame = frame_of(chart);
    std::string svg = begin_svg(chart.label, height) + grid(frame) + attempt_marks(frame, attempts);
    if (chart.limit > 0)
    {
        const double y = frame.at_y(chart.limit);
        svg +=
            fmt::format("<line class=\"limit\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>\n", left, right, y, y);
    }
    for (const ChartLine& line : chart.lines) { svg += draw_line(frame, line); }
    if (!chart.lines.empty()) { svg += tips(frame, chart.lines.front(), chart); }
    for (const ChartLine& line : chart.lines) { svg += draw_marks(frame, line, chart); }
    return svg + step_caption() + "</svg>\n";
}

double longest_step(const RunSummary& run)
{
    double longest = 0;
    for (const PhaseBucket& bucket : run.phase_buckets)
    {
        double sum = 0;
        for (const double seconds : bucket.phase_seconds) { sum += seconds; }
        longest = std::max(longest, sum / static_cast<double>(bucket.count));
    }
    return longest;
}

std::string phase_chart(const RunSummary& run, double unit)
{
    Frame frame;
    frame.x = make_step_axis(run.first_step, run.last_step, max_step_ticks);
    frame.x.low = static_cast<double>(run.first_step) - 0.5;  // a bar is as wide as its steps
    frame.x.high = static_cast<double>(run.last_step) + 0.5;
    frame.y = make_axis(0, longest_step(run) / unit, 6);
    std::string svg = begin_svg("seconds of a step by phase", height) + grid(frame);
    for (const PhaseBucket& bucket : run.phase_buckets)
    {
        std::string text =
            fmt::format("steps {} to {}", format_grouped(bucket.first_step), format_grouped(bucket.last_step));
        const double begin = frame.at_x(static_cast<double>(bucket.first_step) - 0.5);
        const double end = frame.at_x(static_cast<double>(bucket.last_step) + 0.5);
        const double gap = end - begin > 4 ? 1 : 0;
        std::string bars;
        double below = 0;
        for (std::size_t phase = 0; phase < bucket.phase_seconds.size(); ++phase)
        {
            const double mean = bucket.phase_seconds[phase] / static_cast<double>(bucket.count);
            const double from = frame.at_y(below / unit);
            below += mean;
            const double to = frame.at_y(below / unit);
            bars += bar(begin + gap / 2, to, end - begin - gap, from - to, series_color(phase));
            text += fmt::format(", {} {:.3g} ms", run.phases[phase], 1e3 * mean);
        }
        svg += "<g><title>" + escape_html(text) + "</title>" + bars + "</g>\n";
    }
    return svg + step_caption() + "</svg>\n";
}

std::string stack_chart(const std::string& label, const std::vector<StackRow>& rows)
{
    constexpr double row_height = 46;
    double widest = 0;
    for (const StackRow& row : rows)
    {
        double sum = 0;
        for (const StackPart& part : row.parts) { sum += part.value; }
        widest = std::max(widest, sum);
    }
    std::string svg = begin_svg(label, row_height * static_cast<double>(rows.size()) + 4);
    for (std::size_t k = 0; k < rows.size(); ++k)
    {
        const double y = row_height * static_cast<double>(k);
        svg += fmt::format("<text class=\"name\" x=\"4\" y=\"{:.1f}\">{}</text>", y + 15, escape_html(rows[k].label));
        svg += fmt::format("<text class=\"name\" text-anchor=\"end\" x=\"{}\" y=\"{:.1f}\">{}</text>\n", right, y + 15,
                           escape_html(rows[k].total));
        double x = 4;
        for (const StackPart& part : rows[k].parts)
        {
            const double length = widest > 0 ? (right - 4) * part.value / widest : 0;
            svg += "<g><title>" + escape_html(fmt::format("{} {}", part.name, format_memory(part.value))) + "</title>" +
                   bar(x, y + 21, length, 18, series_color(part.color)) + "</g>\n";
            x += length;
        }
    }
    return svg + "</svg>\n";
}

}  // namespace plimsoll
