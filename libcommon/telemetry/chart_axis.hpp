#pragma once
/// Axes of charts: round ticks and short labels. Pure.

#include <cstdint>
#include <string>
#include <vector>

namespace plimsoll
{

enum class AxisScale
{
    linear,
    log
};

struct AxisTick
{
    double value = 0;
    std::string label;
};

/// Range of an axis with its ticks inside; the range encloses low..high and has a positive length.
struct ChartAxis
{
    AxisScale scale = AxisScale::linear;
    double low = 0;
    double high = 1;
    std::vector<AxisTick> ticks;

    /// 0 at low, 1 at high, outside when beyond.
    double position(double value) const;
};

/// Linear: steps of 1, 2 or 5 times a power of ten, at most `max_ticks` (at least 3) of them, the range ends at ticks. Log: powers of
/// ten, with 2 and 5 between when there is room. A log axis of values that are not all positive is linear.
ChartAxis make_axis(double low, double high, int max_ticks, AxisScale scale = AxisScale::linear);
/// Whole steps from first to last: the range is exactly that.
ChartAxis make_step_axis(std::int64_t first, std::int64_t last, int max_ticks);
/// Log when all are positive and the largest is more than 20 times the smallest.
AxisScale choose_scale(double low, double high);

/// At most six characters or so: "0", "0.25", "1.5K", "20M", "6e-04".
std::string short_number(double value);

}  // namespace plimsoll
