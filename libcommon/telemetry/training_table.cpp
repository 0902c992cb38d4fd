#include "telemetry/training_table.hpp"

#include <fmt/format.h>

#include <cmath>

#include "base/units.hpp"
#include "telemetry/host.hpp"

namespace plimsoll
{

namespace
{

constexpr int header_distance = 50;
constexpr const char* row_format = "{:>8}  {:>8}  {:>8}  {:>8}  {:>10}  {:>9}  {:>10}";

/// Fixed digits while they fit the column.
std::string fixed(double value, int digits)
{
    if (!std::isfinite(value)) { return std::isnan(value) ? "nan" : value > 0 ? "inf" : "-inf"; }
    return std::fabs(value) < 1000 ? fmt::format("{:.{}f}", value, digits) : fmt::format("{:.2e}", value);
}

}  // namespace

std::string TrainingTable::header()
{
    return fmt::format(row_format, "step", "loss", "grad", "lr", "tok/s", "peak MiB", "left");
}

std::string TrainingTable::format(const TrainingRow& row)
{
    return fmt::format(row_format, row.step, fixed(row.loss, 4), fixed(row.grad_norm, 3), fmt::format("{:.1e}", row.lr),
                       format_grouped(std::llround(row.tokens_per_second)),
                       fmt::format("{:.1f}", static_cast<double>(row.peak_bytes) / 1048576.0),
                       row.seconds_left < 0 ? std::string("-") : format_clock_hours(row.seconds_left));
}

std::string TrainingTable::format(const ValidationRow& row)
{
    const double perplexity = std::exp(row.loss);
    std::string line =
        fmt::format("{:>8}  val-loss {}   ppl {}", "", fixed(row.loss, 4),
                    perplexity < 1e6 ? fmt::format("{:.2f}", perplexity) : fmt::format("{:.2e}", perplexity));
    if (row.bits_per_byte > 0) { line += fmt::format("   {:.2f} bits/byte", row.bits_per_byte); }
    if (!row.set.empty()) { line += fmt::format("   [eval.{}]", row.set); }
    return line;
}

void TrainingTable::row(const TrainingRow& row)
{
    if (rows_since_header_ < 0 || rows_since_header_ >= header_distance)
    {
        print(header());
        rows_since_header_ = 0;
    }
    print(format(row));
    ++rows_since_header_;
}

void TrainingTable::validation(const ValidationRow& row) { print(format(row)); }

void TrainingTable::print(const std::string& line)
{
    if (stream_ == nullptr) { return; }
    const std::string whole = (kind_ == StreamKind::log ? time_of_day() + " " : "") + line + "\n";
    std::fwrite(whole.data(), 1, whole.size(), stream_);
    std::fflush(stream_);
}

}  // namespace plimsoll
