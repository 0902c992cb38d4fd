#pragma once
/// How long a wait may stand still in a test before it counts as a hang.

#include "support/instrumented.hpp"

namespace plimsoll::testing
{

constexpr double test_watchdog_s = is_instrumented ? 60 : 20;

}  // namespace plimsoll::testing
