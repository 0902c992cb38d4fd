#include "base/log.hpp"

#include <fmt/format.h>

#include <string>

namespace plimsoll
{

void Log::row(std::string_view label, std::string_view text) { line(fmt::format("{:<10} {}", label, text)); }

void Log::line(std::string_view text)
{
    if (stream_ == nullptr) { return; }
    const std::string whole = std::string(text) + "\n";
    const std::lock_guard<std::mutex> guard(mutex_);
    std::fwrite(whole.data(), 1, whole.size(), stream_);
    std::fflush(stream_);
}

}  // namespace plimsoll
