#pragma once
/// Whether a sanitizer is built in, which makes everything many times slower.

namespace plimsoll::testing
{

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr bool is_instrumented = true;
#elif defined(__has_feature)
constexpr bool is_instrumented = __has_feature(thread_sanitizer) || __has_feature(address_sanitizer);
#else
constexpr bool is_instrumented = false;
#endif

}  // namespace plimsoll::testing
