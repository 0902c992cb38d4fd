#pragma once
/// UTF-8 as text files really hold it.

#include <cstdint>
#include <string>
#include <string_view>

namespace plimsoll
{

bool is_valid_utf8(std::string_view text);

/// Appends `text` to `out` with each maximal subpart of an ill-formed sequence replaced by one U+FFFD, as web
/// browsers and Python's errors="replace" do (Unicode 15, section 3.9, "U+FFFD substitution of maximal subparts").
/// Returns how many.
std::int64_t replace_invalid_utf8(std::string_view text, std::string& out);

/// Rewrites, in place and without changing its length, each escape of a lone surrogate in a line of JSON (a high one
/// without a low one behind it, or a low one alone) to \ufffd. Returns how many.
std::int64_t replace_lone_surrogate_escapes(char* json, std::int64_t bytes);

}  // namespace plimsoll
