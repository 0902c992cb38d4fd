#pragma once
/// Charts as inline SVG: no script, no style sheet but the page's classes, text of at least 12 units in a width of 420.

#include <string>
#include <string_view>
#include <vector>

#include "telemetry/chart_axis.hpp"
#include "telemetry/run_reader.hpp"

namespace plimsoll
{

/// Text for HTML and SVG, in elements and in quoted attributes: the five special characters escaped, bytes that are no UTF-8
/// and control characters replaced.
std::string escape_html(std::string_view text);

/// The colour of the k-th series; told apart also by those who see no red or green (Okabe and Ito).
const char* series_color(std::size_t k);

enum class LineMark
{
    line,   ///< with a band from least to largest where points stand for several steps
    points  ///< a thin line with a dot at each
};

struct ChartLine
{
    std::string name;
    const Curve* curve = nullptr;
    std::size_t color = 0;
    LineMark mark = LineMark::line;
};

struct LineChart
{
    std::string label;  ///< for those who do not see it
    std::vector<ChartLine> lines;
    AxisScale scale = AxisScale::linear;
    bool from_zero = false;
    double limit = 0;                         ///< > 0: a dashed horizontal line
    std::string (*number)(double) = nullptr;  ///< of a tool tip's value
};

/// Curves over steps, with a dashed line where each later attempt begins.
std::string line_chart(const LineChart& chart, const std::vector<RunAttempt>& attempts);

/// Stacked bars: mean time of a step by phase, in units of `unit` seconds.
std::string phase_chart(const RunSummary& run, double unit);
/// Seconds of the longest bar.
double longest_step(const RunSummary& run);

struct StackPart
{
    std::string name;
    double value = 0;
    std::size_t color = 0;
};
struct StackRow
{
    std::string label;
    std::string total;
    std::vector<StackPart> parts;
};
/// Horizontal stacked bars on one scale.
std::string stack_chart(const std::string& label, const std::vector<StackRow>& rows);

}  // namespace plimsoll
