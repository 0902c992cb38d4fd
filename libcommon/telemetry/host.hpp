#pragma once
/// Where and when, for files that a person reads later.

#include <string>

namespace plimsoll
{

/// Name of this machine.
std::string host_name();
/// UTC with milliseconds: "2026-01-31T12:00:00.000Z".
std::string utc_now();
/// Local time of day: "12:00:00".
std::string time_of_day();

}  // namespace plimsoll
