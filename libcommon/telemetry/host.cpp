#include "telemetry/host.hpp"

#include <fmt/format.h>

#include <ctime>
#include <unistd.h>

namespace plimsoll
{

std::string host_name()
{
    char name[256] = {};
    return ::gethostname(name, sizeof name - 1) == 0 ? name : "unknown";
}

std::string utc_now()
{
    timespec now = {};
    ::clock_gettime(CLOCK_REALTIME, &now);
    std::tm parts = {};
    ::gmtime_r(&now.tv_sec, &parts);
    char text[32] = {};
    std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
    return fmt::format("{}.{:03}Z", text, now.tv_nsec / 1000000);
}

std::string time_of_day()
{
    const std::time_t now = std::time(nullptr);
    std::tm parts = {};
    ::localtime_r(&now, &parts);
    char text[16] = {};
    std::strftime(text, sizeof text, "%H:%M:%S", &parts);
    return text;
}

}  // namespace plimsoll
