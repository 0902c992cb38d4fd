#pragma once
/// How long a wait may stand still in a test before it counts as a hang.

namespace plimsoll::testing
{

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr double test_watchdog_s = 60;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
constexpr double test_watchdog_s = 60;
#else
constexpr double test_watchdog_s = 20;
#endif
#else
constexpr double test_watchdog_s = 20;
#endif

}  // namespace plimsoll::testing
