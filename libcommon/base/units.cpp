#include "base/units.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.hpp"

namespace plimsoll
{

namespace
{

struct Suffix
{
    std::string_view name;
    double factor;
};

constexpr std::array<Suffix, 10> byte_suffixes = {{{"TiB", 1099511627776.0},
                                                   {"GiB", 1073741824.0},
                                                   {"MiB", 1048576.0},
                                                   {"KiB", 1024.0},
                                                   {"TB", 1e12},
                                                   {"GB", 1e9},
                                                   {"MB", 1e6},
                                                   {"kB", 1e3},
                                                   {"KB", 1e3},
                                                   {"B", 1.0}}};
constexpr std::array<Suffix, 5> duration_suffixes = {
    {{"min", 60.0}, {"ms", 1e-3}, {"h", 3600.0}, {"d", 86400.0}, {"s", 1.0}}};

std::string_view trim(std::string_view text)
{
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) { text.remove_prefix(1); }
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) { text.remove_suffix(1); }
    return text;
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

bool ends_with(std::string_view text, std::string_view end)
{
    return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

/// Whole text as a finite double.
bool read_number(std::string_view text, double& value)
{
    if (!text.empty() && text.front() == '+') { text.remove_prefix(1); }
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    return result.ec == std::errc() && result.ptr == text.data() + text.size() && std::isfinite(value);
}

/// digits * 10^exponent without rounding; false when not whole or beyond 64 bits.
bool scale_exactly(__int128 digits, int exponent, std::int64_t& value)
{
    constexpr __int128 limit = std::numeric_limits<std::int64_t>::max();
    while (exponent < 0)
    {
        if (digits % 10 != 0) { return false; }
        digits /= 10;
        ++exponent;
        if (digits == 0) { exponent = 0; }
    }
    for (; exponent > 0 && digits != 0; --exponent)
    {
        digits *= 10;
        if (digits > limit || digits < -limit) { return false; }
    }
    if (digits > limit || digits < -limit) { return false; }
    value = static_cast<std::int64_t>(digits);
    return true;
}

bool read_count(std::string_view text, std::int64_t& value)
{
    int exponent = 0;
    constexpr std::string_view suffixes = "KMBT";
    if (!text.empty())
    {
        const char last = text.back() == 'k' ? 'K' : text.back();
        const std::size_t which = suffixes.find(last);
        if (which != std::string_view::npos)
        {
            exponent = 3 * (static_cast<int>(which) + 1);
            text.remove_suffix(1);
        }
    }
    bool negative = false;
    if (!text.empty() && (text.front() == '-' || text.front() == '+'))
    {
        negative = text.front() == '-';
        text.remove_prefix(1);
    }
    __int128 digits = 0;
    int num_digits = 0;
    bool in_fraction = false;
    std::size_t at = 0;
    for (; at < text.size() && text[at] != 'e' && text[at] != 'E'; ++at)
    {
        if (text[at] == '.' && !in_fraction)
        {
            in_fraction = true;
            continue;
        }
        if (!is_digit(text[at]) || num_digits > 30) { return false; }
        digits = digits * 10 + (text[at] - '0');
        ++num_digits;
        if (in_fraction) { --exponent; }
    }
    if (num_digits == 0) { return false; }
    if (at < text.size())
    {
        int power = 0;
        const char* first = text.data() + at + 1;
        const char* end = text.data() + text.size();
        if (first < end && *first == '+') { ++first; }
        const auto result = std::from_chars(first, end, power);
        if (result.ec != std::errc() || result.ptr != end || power > 30 || power < -30) { return false; }
        exponent += power;
    }
    return scale_exactly(negative ? -digits : digits, exponent, value);
}

/// Three significant digits: 1.50, 15.0, 150.
std::string three_digits(double value)
{
    if (value < 9.995) { return fmt::format("{:.2f}", value); }
    if (value < 99.95) { return fmt::format("{:.1f}", value); }
    return fmt::format("{:.0f}", value);
}

std::string scaled(double value, double base, const std::array<const char*, 5>& names)
{
    const double magnitude = std::fabs(value);
    if (magnitude < base) { return fmt::format("{:.0f} {}", value, names[0]); }
    double amount = magnitude;
    std::size_t unit = 0;
    // 999.7 MB would print as "1000 MB": the next unit is taken as soon as the rounded number reaches the base.
    while (unit + 1 < names.size() && std::round(amount) >= base)
    {
        amount /= base;
        ++unit;
    }
    return (value < 0 ? "-" : "") + three_digits(amount) + " " + names[unit];
}

}  // namespace

std::int64_t parse_count(std::string_view text)
{
    std::int64_t value = 0;
    VALIDATE(read_count(trim(text), value), ConfigError,
             "'{}' is not a whole number (a count such as 50, 500K or 1.5B is wanted)", text);
    return value;
}

std::int64_t parse_bytes(std::string_view text)
{
    const std::string_view all = trim(text);
    for (const Suffix& suffix : byte_suffixes)
    {
        if (!ends_with(all, suffix.name)) { continue; }
        double amount = 0;
        const std::string_view number = trim(all.substr(0, all.size() - suffix.name.size()));
        if (!read_number(number, amount) || amount < 0) { break; }
        const double bytes = std::round(amount * suffix.factor);
        VALIDATE(bytes < 9.2e18, ConfigError, "'{}' is too large (at most 8 EiB)", text);
        return static_cast<std::int64_t>(bytes);
    }
    double bare = 0;
    VALIDATE(!read_number(all, bare), ConfigError, "'{0}' has no unit (bytes need one). write {0}GiB, {0}MiB or {0}GB",
             all);
    if (!all.empty() && std::string_view("kKMGT").find(all.back()) != std::string_view::npos &&
        read_number(trim(all.substr(0, all.size() - 1)), bare))
    {
        throw ConfigError(fmt::format("'{0}' is ambiguous (powers of two or of ten). write {0}iB or {0}B", all));
    }
    throw ConfigError(fmt::format("'{}' is not an amount of bytes (such as 80GiB, 512MiB or 1.5GB)", text));
}

std::int64_t parse_transfer_size(std::string_view text)
{
    std::string_view number = trim(text);
    double factor = 1;
    const std::size_t which = number.empty() ? std::string_view::npos : std::string_view("KMG").find(number.back());
    if (which != std::string_view::npos)
    {
        factor = std::pow(1024.0, static_cast<double>(which + 1));
        number.remove_suffix(1);
    }
    double amount = 0;
    if (read_number(number, amount) && is_digit(number.back()))
    {
        const double bytes = amount * factor;
        VALIDATE(amount >= 0 && bytes == std::floor(bytes) && bytes < 9.2e18, ConfigError,
                 "'{}' is not a whole number of bytes from 0 to 8 EiB", text);
        return static_cast<std::int64_t>(bytes);
    }
    try
    {
        return parse_bytes(text);
    }
    catch (const ConfigError&)
    {
        throw ConfigError(fmt::format("'{}' is not a size (such as 8, 64K, 1M or 2G; these are powers of two)", text));
    }
}

double parse_duration(std::string_view text)
{
    const std::string_view all = trim(text);
    const auto refuse = [&]()
    { throw ConfigError(fmt::format("'{}' is not a duration (such as 45s, 30min, 1.5h or 1:30:00)", text)); };
    if (all.empty()) { refuse(); }
    double total = 0;
    if (all.find(':') != std::string_view::npos)
    {
        std::string_view rest = all;
        int parts = 0;
        for (bool more = true; more; ++parts)
        {
            const std::size_t colon = rest.find(':');
            more = colon != std::string_view::npos;
            const std::string_view part = rest.substr(0, colon);
            unsigned value = 0;
            const auto result = std::from_chars(part.data(), part.data() + part.size(), value);
            if (result.ec != std::errc() || result.ptr != part.data() + part.size()) { refuse(); }
            if (parts > 2 || (parts > 0 && value > 59)) { refuse(); }
            total = total * 60 + value;
            if (more) { rest = rest.substr(colon + 1); }
        }
        return total;
    }
    double bare = 0;
    VALIDATE(!read_number(all, bare), ConfigError, "'{0}' has no unit (durations need one). write {0}s, {0}min or {0}h",
             all);
    std::string_view rest = all;
    while (!rest.empty())
    {
        std::size_t digits = 0;
        while (digits < rest.size() && (is_digit(rest[digits]) || rest[digits] == '.')) { ++digits; }
        std::size_t letters = digits;
        while (letters < rest.size() && !is_digit(rest[letters])) { ++letters; }
        const std::string_view unit = trim(rest.substr(digits, letters - digits));
        double amount = 0;
        double factor = 0;
        for (const Suffix& suffix : duration_suffixes)
        {
            if (unit == suffix.name) { factor = suffix.factor; }
        }
        if (factor == 0 || !read_number(rest.substr(0, digits), amount)) { refuse(); }
        total += amount * factor;
        rest = rest.substr(letters);
    }
    return total;
}

double parse_number(std::string_view text)
{
    double value = 0;
    VALIDATE(read_number(trim(text), value), ConfigError, "'{}' is not a number (such as 0.1 or 6e-4)", text);
    return value;
}

Span parse_span(std::string_view text)
{
    const std::string_view all = trim(text);
    const auto refuse = [&]()
    { throw ConfigError(fmt::format("'{}' is not a span (such as 50 steps, 2%, 100M tokens, 30min or never)", text)); };
    Span span;
    if (all == "never") { return span; }
    double amount = 0;
    std::int64_t count = 0;
    const std::size_t space = all.find(' ');
    const std::string_view head = trim(all.substr(0, space));
    const std::string_view tail = space == std::string_view::npos ? std::string_view() : trim(all.substr(space));
    if (read_count(all, count) || (read_count(head, count) && (tail == "steps" || tail == "step")))
    {
        span.unit = Span::Unit::steps;
        span.amount = static_cast<double>(count);
    }
    else if (read_count(head, count) && (tail == "tokens" || tail == "token"))
    {
        span.unit = Span::Unit::tokens;
        span.amount = static_cast<double>(count);
    }
    else if (ends_with(all, "%"))
    {
        if (!read_number(trim(all.substr(0, all.size() - 1)), amount)) { refuse(); }
        VALIDATE(amount >= 0 && amount <= 100, ConfigError, "'{}' is out of range (0% to 100%)", text);
        span.unit = Span::Unit::percent;
        span.amount = amount;
    }
    else
    {
        try
        {
            span.amount = parse_duration(all);
        }
        catch (const ConfigError&)
        {
            refuse();
        }
        span.unit = Span::Unit::seconds;
    }
    VALIDATE(span.amount >= 0, ConfigError, "'{}' is negative (a span is at least 0)", text);
    return span;
}

RelativeValue parse_relative(std::string_view text)
{
    std::string_view all = trim(text);
    RelativeValue value;
    if (ends_with(all, "x"))
    {
        value.relative = true;
        all.remove_suffix(1);
    }
    VALIDATE(read_number(all, value.amount), ConfigError, "'{}' is neither a number nor a share (such as 6e-5 or 0.1x)",
             text);
    return value;
}

bool parse_bool(std::string_view text)
{
    const std::string_view all = trim(text);
    if (all == "true" || all == "yes" || all == "on" || all == "1") { return true; }
    if (all == "false" || all == "no" || all == "off" || all == "0") { return false; }
    throw ConfigError(fmt::format("'{}' is neither true nor false", text));
}

std::string number_text(double value) { return fmt::format("{}", value); }

std::string span_text(const Span& span)
{
    switch (span.unit)
    {
        case Span::Unit::never: return "never";
        case Span::Unit::steps: return fmt::format("{:.0f}", span.amount);
        case Span::Unit::percent: return number_text(span.amount) + "%";
        case Span::Unit::tokens: return fmt::format("{:.0f} tokens", span.amount);
        case Span::Unit::seconds: return number_text(span.amount) + "s";
    }
    return "never";
}

std::string bytes_text(std::int64_t bytes)
{
    std::int64_t least = bytes;
    std::string_view unit = "B";
    for (const Suffix& suffix : byte_suffixes)
    {
        const auto factor = static_cast<std::int64_t>(suffix.factor);
        if (bytes % factor == 0 && bytes / factor < least)
        {
            least = bytes / factor;
            unit = suffix.name;
        }
    }
    return fmt::format("{}{}", least, unit);
}

std::string duration_text(double seconds) { return number_text(seconds) + "s"; }

std::string format_grouped(std::int64_t value)
{
    std::string digits = std::to_string(value);
    const std::size_t first = digits[0] == '-' ? 1 : 0;
    for (std::size_t at = digits.size(); at > first + 3;)
    {
        at -= 3;
        digits.insert(at, ",");
    }
    return digits;
}

std::string format_count(double value)
{
    if (std::fabs(value) < 999999.5) { return format_grouped(std::llround(value)); }
    static constexpr std::array<const char*, 5> names = {"", "K", "M", "B", "T"};
    return scaled(value, 1000.0, names);
}

std::string format_memory(double bytes)
{
    static constexpr std::array<const char*, 5> names = {"B", "KiB", "MiB", "GiB", "TiB"};
    return scaled(bytes, 1024.0, names);
}

std::string format_storage(double bytes)
{
    static constexpr std::array<const char*, 5> names = {"B", "kB", "MB", "GB", "TB"};
    return scaled(bytes, 1000.0, names);
}

std::string format_rate(double bytes_per_second) { return format_storage(bytes_per_second) + "/s"; }

std::string format_clock(double seconds)
{
    const std::int64_t all = std::isfinite(seconds) ? std::llround(std::fmax(seconds, 0.0)) : 0;
    if (all < 3600) { return fmt::format("{}:{:02}", all / 60, all % 60); }
    return fmt::format("{}:{:02}:{:02}", all / 3600, all / 60 % 60, all % 60);
}

std::string format_clock_hours(double seconds)
{
    const std::int64_t all = std::isfinite(seconds) ? std::llround(std::fmax(seconds, 0.0)) : 0;
    return fmt::format("{}:{:02}:{:02}", all / 3600, all / 60 % 60, all % 60);
}

}  // namespace plimsoll
