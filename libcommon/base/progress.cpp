#include "base/progress.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unistd.h>
#include <utility>

#include "base/units.hpp"

namespace plimsoll
{

namespace
{

constexpr double terminal_interval = 0.2;
constexpr double terminal_delay = 0.5;  // short work shows no progress at all
constexpr double log_interval = 30.0;
constexpr std::int64_t bar_width = 36;

double steady_seconds()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

StreamKind kind_of(std::FILE* stream)
{
    return ::isatty(::fileno(stream)) == 1 ? StreamKind::terminal : StreamKind::log;
}

Progress::Progress(std::FILE* stream, StreamKind kind, std::string label, ProgressUnit unit, std::int64_t total,
                   Clock clock)
    : stream_(stream),
      kind_(kind),
      label_(std::move(label)),
      unit_(unit),
      total_(total),
      clock_(clock ? std::move(clock) : Clock(steady_seconds))
{
    start_ = clock_();
    next_ = start_ + (kind_ == StreamKind::terminal ? terminal_delay : log_interval);
}

Progress::~Progress()
{
    if (width_ > 0)
    {
        std::fputc('\n', stream_);
        std::fflush(stream_);
    }
}

void Progress::update(std::int64_t done, std::string_view note)
{
    const double now = clock_();
    if (now < next_) { return; }
    next_ = now + (kind_ == StreamKind::terminal ? terminal_interval : log_interval);
    const std::string line = render(done, now - start_, note);
    if (kind_ == StreamKind::log) { fmt::print(stream_, "{}\n", line); }
    else
    {
        // Blanks cover what a longer line before left behind.
        fmt::print(stream_, "\r{:<{}}", line, width_);
        width_ = std::max(width_, line.size());
    }
    std::fflush(stream_);
}

void Progress::finish()
{
    if (width_ > 0)
    {
        fmt::print(stream_, "\r{:<{}}\r", "", width_);
        std::fflush(stream_);
    }
    width_ = 0;
}

std::string Progress::render(std::int64_t done, double seconds, std::string_view note) const
{
    const bool bytes = unit_ == ProgressUnit::bytes;
    const double rate = seconds > 0 ? static_cast<double>(done) / seconds : 0.0;
    std::string line = "  " + label_;
    if (total_ > 0)
    {
        const std::int64_t part = std::clamp<std::int64_t>(done, 0, total_);
        const double share = static_cast<double>(part) / static_cast<double>(total_);
        const auto filled = static_cast<std::size_t>(share * static_cast<double>(bar_width));
        line += fmt::format(" {:3d} %  {:.<{}}", static_cast<int>(share * 100.0), std::string(filled, '#'), bar_width);
    }
    line += "  " + (bytes ? format_storage(static_cast<double>(done)) : format_grouped(done));
    line += "  " + (bytes ? format_rate(rate) : format_count(rate) + "/s");
    if (!note.empty()) { line += "  " + std::string(note); }
    if (total_ > 0 && rate > 0)
    {
        line += "  " + format_clock(static_cast<double>(std::max<std::int64_t>(total_ - done, 0)) / rate) + " left";
    }
    return line;
}

}  // namespace plimsoll
