#include "telemetry/chart_axis.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace plimsoll
{

namespace
{

/// "1.50" -> "1.5", "2.0" -> "2".
std::string without_zeros(std::string text)
{
    if (text.find('.') == std::string::npos) { return text; }
    while (text.back() == '0') { text.pop_back(); }
    if (text.back() == '.') { text.pop_back(); }
    return text;
}

/// Smallest of 1, 2, 5 times a power of ten that is not below `least`.
double round_step(double least)
{
    const double power = std::pow(10.0, std::floor(std::log10(least)));
    for (const double factor : {1.0, 2.0, 5.0})
    {
        if (factor * power >= least * (1 - 1e-9)) { return factor * power; }
    }
    return 10 * power;
}

/// The least step that leaves at most `max_ticks` ticks on low..high.
double step_of(double low, double high, int max_ticks)
{
    max_ticks = std::max(max_ticks, 3);  // two cannot enclose a range with zero inside
    double step = round_step((high - low) / (max_ticks - 1));
    while (std::ceil(high / step - 1e-9) - std::floor(low / step + 1e-9) + 1 > max_ticks)
    {
        step = round_step(step * 1.5);
    }
    return step;
}

/// Digits behind the point are the same for all ticks of an axis.
std::vector<AxisTick> ticks_between(double low, double high, double step)
{
    std::vector<AxisTick> ticks;
    const double first = std::ceil(low / step - 1e-9);
    const double last = std::floor(high / step + 1e-9);
    const int digits = std::max(0, -static_cast<int>(std::floor(std::log10(step) + 1e-9)));
    const bool plain = digits <= 3 && std::max(std::fabs(low), std::fabs(high)) < 1e4;
    for (double k = first; k <= last; ++k)
    {
        const double value = k == 0 ? 0 : k * step;
        ticks.push_back({value, plain ? fmt::format("{:.{}f}", value, digits) : short_number(value)});
    }
    return ticks;
}

ChartAxis log_axis(double low, double high, int max_ticks)
{
    ChartAxis axis;
    axis.scale = AxisScale::log;
    if (high <= low) { high = low * 1.0000001; }
    const int first = static_cast<int>(std::floor(std::log10(low)));
    const int last = static_cast<int>(std::ceil(std::log10(high)));
    for (const auto& factors : {std::vector<double>{1, 2, 5}, std::vector<double>{1, 3}, std::vector<double>{1}})
    {
        std::vector<double> values;
        for (int power = first - 1; power <= last; ++power)
        {
            for (const double factor : factors) { values.push_back(factor * std::pow(10.0, power)); }
        }
        values.push_back(std::pow(10.0, last + 1));
        // From the last tick at or below low to the first at or above high.
        std::size_t from = 0;
        while (from + 1 < values.size() && values[from + 1] <= low * (1 + 1e-9)) { ++from; }
        std::size_t to = from + 1;
        while (to + 1 < values.size() && values[to] < high * (1 - 1e-9)) { ++to; }
        axis.low = values[from];
        axis.high = values[to];
        axis.ticks.clear();
        const auto count = static_cast<int>(to - from + 1);
        const int every = factors.size() > 1 ? 1 : (count + max_ticks - 1) / max_ticks;
        for (std::size_t k = from; k <= to; k += static_cast<std::size_t>(every))
        {
            axis.ticks.push_back({values[k], short_number(values[k])});
        }
        if (static_cast<int>(axis.ticks.size()) <= max_ticks) { break; }
    }
    return axis;
}

}  // namespace

double ChartAxis::position(double value) const
{
    if (scale == AxisScale::log) { return value > 0 ? std::log(value / low) / std::log(high / low) : -HUGE_VAL; }
    return (value - low) / (high - low);
}

AxisScale choose_scale(double low, double high)
{
    return low > 0 && high > 20 * low ? AxisScale::log : AxisScale::linear;
}

ChartAxis make_axis(double low, double high, int max_ticks, AxisScale scale)
{
    if (scale == AxisScale::log && low > 0) { return log_axis(low, high, max_ticks); }
    if (!(high > low))
    {
        const double margin = low == 0 ? 1 : 0.05 * std::fabs(low);
        low -= margin;
        high += margin;
    }
    const double step = step_of(low, high, max_ticks);
    ChartAxis axis;
    axis.low = std::floor(low / step + 1e-9) * step;
    axis.high = std::ceil(high / step - 1e-9) * step;
    axis.ticks = ticks_between(axis.low, axis.high, step);
    return axis;
}

ChartAxis make_step_axis(std::int64_t first, std::int64_t last, int max_ticks)
{
    ChartAxis axis;
    axis.low = static_cast<double>(first);
    axis.high = static_cast<double>(last);
    if (last <= first)
    {
        axis.high = axis.low + 1;
        axis.ticks = {{axis.low, short_number(axis.low)}};
        return axis;
    }
    const double step = std::max(1.0, round_step((axis.high - axis.low) / std::max(1, max_ticks - 1)));
    const double begin = std::ceil(axis.low / step - 1e-9);
    for (double k = begin; k * step <= axis.high * (1 + 1e-12); ++k)
    {
        axis.ticks.push_back({k * step, short_number(k * step)});
    }
    return axis;
}

std::string short_number(double value)
{
    if (!std::isfinite(value)) { return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf"; }
    const double size = std::fabs(value);
    if (size == 0) { return "0"; }
    constexpr std::array<std::pair<double, const char*>, 4> units = {{{1e12, "T"}, {1e9, "B"}, {1e6, "M"}, {1e3, "K"}}};
    if (size >= 9.995e14 || size < 9.995e-4) { return fmt::format("{:.0e}", value); }
    for (const auto& unit : units)
    {
        if (size < unit.first * 0.9995) { continue; }
        return without_zeros(fmt::format("{:.{}f}", value / unit.first, size < 99.95 * unit.first ? 2 : 0)) +
               unit.second;
    }
    return without_zeros(fmt::format("{:.{}f}", value, size >= 99.95 ? 1 : size >= 9.995 ? 2 : size >= 0.9995 ? 3 : 4));
}

}  // namespace plimsoll
