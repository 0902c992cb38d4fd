#pragma once
/// Text in columns for --help.

#include <cstddef>
#include <string>

namespace plimsoll
{

/// "  left      text", the text wrapped at `width` and indented to `column`; a long left part gets its own line.
std::string two_columns(const std::string& left, const std::string& text, std::size_t column, std::size_t width);

/// Lines of at most `width` characters, broken at spaces, each behind `indent` spaces.
std::string wrap_text(const std::string& text, std::size_t indent, std::size_t width);

}  // namespace plimsoll
