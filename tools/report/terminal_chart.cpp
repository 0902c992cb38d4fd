#include "terminal_chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace plimsoll
{

namespace
{

/// U+2800 + bits: the dots of a braille character.
std::string braille(unsigned bits)
{
    const unsigned code = 0x2800U + bits;
    return {static_cast<char>(0xe0U | (code >> 12)), static_cast<char>(0x80U | ((code >> 6) & 0x3fU)),
            static_cast<char>(0x80U | (code & 0x3fU))};
}

constexpr std::array<std::array<unsigned, 2>, 4> braille_bits = {
    {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}}};

constexpr std::size_t label_width = 8;

/// Least and largest value that fall into each column of dots; empty ones hold NaN.
struct Column
{
    double low = std::numeric_limits<double>::quiet_NaN();
    double high = std::numeric_limits<double>::quiet_NaN();

    void include(double value)
    {
        low = std::isnan(low) ? value : std::min(low, value);
        high = std::isnan(high) ? value : std::max(high, value);
    }
};

std::vector<Column> columns_of(const std::vector<CurveBucket>& buckets, const ChartAxis& x, int across)
{
    std::vector<Column> columns(static_cast<std::size_t>(across));
    for (const CurveBucket& bucket : buckets)
    {
        if (bucket.count == 0) { continue; }
        const double at = std::clamp(x.position(bucket.middle()), 0.0, 1.0) * (across - 1);
        columns[static_cast<std::size_t>(std::lround(at))].include(bucket.mean());
    }
    return columns;
}

/// Columns without a value, and the way up or down to the next one, are bridged by a straight line.
template<class RowOf>
void draw(DotCanvas& canvas, const std::vector<Column>& columns, const RowOf& row_of)
{
    int previous = -1, previous_row = 0;
    for (int at = 0; at < static_cast<int>(columns.size()); ++at)
    {
        const Column& column = columns[static_cast<std::size_t>(at)];
        if (std::isnan(column.low)) { continue; }
        const int upper = row_of(column.high), lower = row_of(column.low);
        for (int dot = upper; dot <= lower; ++dot) { canvas.set(at, dot); }
        const int here = std::clamp(previous_row, upper, lower);
        for (int between = previous + 1, row = previous_row; previous >= 0 && between <= at; ++between)
        {
            const int next = previous_row + (here - previous_row) * (between - previous) / (at - previous);
            for (; row != next; row += row < next ? 1 : -1) { canvas.set(between, row); }
            if (between < at) { canvas.set(between, next); }
        }
        previous = at;
        previous_row = (upper + lower) / 2;
    }
}

std::string axis_line(const ChartAxis& x, int across)
{
    std::string line(static_cast<std::size_t>(across), ' ');
    std::size_t free_from = 0;
    for (const AxisTick& tick : x.ticks)
    {
        const auto at = static_cast<std::size_t>(std::lround(x.position(tick.value) * (across - 1)));
        const std::size_t from = std::min(at, line.size() - std::min(line.size(), tick.label.size()));
        if (from < free_from || from + tick.label.size() > line.size()) { continue; }
        line.replace(from, tick.label.size(), tick.label);
        free_from = from + tick.label.size() + 1;
    }
    return line;
}

}  // namespace

DotCanvas::DotCanvas(int columns, int rows, Glyphs glyphs)
    : columns_(columns),
      rows_(rows),
      glyphs_(glyphs),
      dots_x_(glyphs == Glyphs::unicode ? 2 : 1),
      dots_y_(glyphs == Glyphs::unicode ? 4 : 2),
      dots_(static_cast<std::size_t>(columns * dots_x_ * rows * dots_y_))
{
}

void DotCanvas::set(int x, int y)
{
    if (x < 0 || y < 0 || x >= dots_across() || y >= dots_down()) { return; }
    dots_[static_cast<std::size_t>(y * dots_across() + x)] = true;
}

std::vector<std::string> DotCanvas::lines() const
{
    std::vector<std::string> all;
    for (int row = 0; row < rows_; ++row)
    {
        std::string line;
        for (int column = 0; column < columns_; ++column)
        {
            unsigned bits = 0;
            for (int dy = 0; dy < dots_y_; ++dy)
            {
                for (int dx = 0; dx < dots_x_; ++dx)
                {
                    const int at = (row * dots_y_ + dy) * dots_across() + column * dots_x_ + dx;
                    if (!dots_[static_cast<std::size_t>(at)]) { continue; }
                    bits |= glyphs_ == Glyphs::unicode
                                ? braille_bits[static_cast<std::size_t>(dy)][static_cast<std::size_t>(dx)]
                                : 1U << dy;
                }
            }
            line += glyphs_ == Glyphs::unicode ? (bits == 0 ? " " : braille(bits)) : std::string(1, " '.:"[bits]);
        }
        all.push_back(std::move(line));
    }
    return all;
}

std::vector<std::string> curve_lines(const Curve& curve, const ChartAxis& x, AxisScale scale, Glyphs glyphs, int width,
                                     int rows)
{
    const std::vector<CurveBucket> buckets = curve.buckets();
    const int across = std::max(10, width - static_cast<int>(label_width) - 2);
    DotCanvas canvas(across, rows, glyphs);
    const ChartAxis y = make_axis(curve.minimum(), curve.maximum(), rows / 2 + 1, scale);
    const int down = canvas.dots_down();
    const auto row_of = [&](double value)
    { return static_cast<int>(std::lround((1 - std::clamp(y.position(value), 0.0, 1.0)) * (down - 1))); };
    draw(canvas, columns_of(buckets, x, canvas.dots_across()), row_of);
    std::vector<std::string> lines = canvas.lines();
    std::vector<std::string> labels(lines.size());
    for (const AxisTick& tick : y.ticks)
    {
        labels[static_cast<std::size_t>(row_of(tick.value) * rows / down)] = tick.label;
    }
    const char* edge = glyphs == Glyphs::unicode ? "\xe2\x94\x82" : "|";
    for (std::size_t k = 0; k < lines.size(); ++k)
    {
        lines[k] = fmt::format("{:>{}} {}{}", labels[k], label_width, edge, lines[k]);
    }
    lines.push_back(fmt::format("{:>{}}  {}", "step", label_width, axis_line(x, across)));
    for (std::string& line : lines) { line.erase(line.find_last_not_of(' ') + 1); }
    return lines;
}

std::string share_bar(double share, int width, Glyphs glyphs)
{
    const double columns = std::clamp(share, 0.0, 1.0) * width;
    if (glyphs == Glyphs::ascii)
    {
        const auto full = static_cast<std::size_t>(std::lround(columns));
        return std::string(full, '#') + std::string(static_cast<std::size_t>(width) - full, '.');
    }
    const auto eighths = static_cast<int>(std::lround(columns * 8));
    std::string bar;
    for (int k = 0; k < width; ++k)
    {
        const int filled = std::clamp(eighths - 8 * k, 0, 8);
        // U+2588 is a full block, U+2589 seven eighths, ... U+258F one.
        if (filled == 0) { bar += ' '; }
        else { bar += {'\xe2', '\x96', static_cast<char>(0x90 - filled)}; }
    }
    return bar;
}

std::size_t shown_width(const std::string& text)
{
    return static_cast<std::size_t>(std::count_if(text.begin(), text.end(),
                                                  [](char c)
                                                  { return (static_cast<unsigned char>(c) & 0xc0U) != 0x80; }));
}

}  // namespace plimsoll
