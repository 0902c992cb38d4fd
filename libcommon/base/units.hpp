#pragma once
/// Numbers with units as people write and read them. Parsing throws ConfigError with a message that names the value and
/// what was expected; the caller adds where the value came from. All functions are pure and thread-safe.

#include <cstdint>
#include <string>
#include <string_view>

namespace plimsoll
{

/// "50" steps, "2%", "100M tokens" or "30min": of a run (warmup, decay) or between events (every).
struct Span
{
    enum class Unit
    {
        never,
        steps,
        percent,
        tokens,
        seconds
    };
    Unit unit = Unit::never;
    double amount = 0;
};

inline bool operator==(const Span& a, const Span& b) { return a.unit == b.unit && a.amount == b.amount; }

/// A learning rate, absolute ("6e-5") or as a share of another one ("0.1x").
struct RelativeValue
{
    double amount = 0;
    bool relative = false;

    double of(double whole) const { return relative ? amount * whole : amount; }
};

/// Whole number with an optional decimal suffix K M B T: "500K" is 500,000, "1.5B" is 1,500,000,000. A value that is no
/// whole number ("1.5", "0.0001K") is refused. Negative numbers parse.
std::int64_t parse_count(std::string_view text);
/// Bytes; a unit is needed: B, KiB MiB GiB TiB (powers of two) or kB MB GB TB (powers of ten).
std::int64_t parse_bytes(std::string_view text);
/// Bytes as benchmarks write them: "8", "64K", "1M", "2G" in powers of two; a full unit ("64KiB", "1MB") as parse_bytes().
std::int64_t parse_transfer_size(std::string_view text);
/// Seconds from "45s", "30min", "1.5h", "1h30min" or "H:MM:SS"; a unit is needed.
double parse_duration(std::string_view text);
/// Finite number: "0.1", "6e-4", "2%" is refused.
double parse_number(std::string_view text);
/// "50", "2%", "100M tokens", "30min", "never".
Span parse_span(std::string_view text);
/// "6e-5" or "0.1x".
RelativeValue parse_relative(std::string_view text);
/// true false yes no on off 1 0.
bool parse_bool(std::string_view text);

/// Shortest text that parses back to the same value: "0.0006", "2%", "100000000 tokens", "1800s", "never".
std::string number_text(double value);
std::string span_text(const Span& span);
std::string bytes_text(std::int64_t bytes);
std::string duration_text(double seconds);

/// For people: 812334 -> "812,334".
std::string format_grouped(std::int64_t value);
/// 8030000000 -> "8.03 B", 5100000 -> "5.10 M", 61035 -> "61,035" (below one million grouped).
std::string format_count(double value);
/// Memory, powers of two: "1.50 GiB", "112 MiB", "512 B".
std::string format_memory(double bytes);
/// Storage and traffic, powers of ten: "3.81 GB", "61.2 MB", "512 B".
std::string format_storage(double bytes);
/// "214 MB/s".
std::string format_rate(double bytes_per_second);
/// Seconds as a clock: 7 -> "0:07", 64 -> "1:04", 3672 -> "1:01:12".
std::string format_clock(double seconds);
/// Always with hours: 64 -> "0:01:04".
std::string format_clock_hours(double seconds);

}  // namespace plimsoll
