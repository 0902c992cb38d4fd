#pragma once
/// Normalization form C as the tokenizers that ask for it know it (scripts/make_unicode_tables.py says which version).

#include <string>
#include <string_view>

namespace plimsoll
{

/// True where nothing in `text` could make NFC change it; false does not say that it would.
bool is_surely_nfc(std::string_view text);

/// Appends the NFC of `text`, well-formed UTF-8, to `out`.
void append_nfc(std::string_view text, std::string& out);

}  // namespace plimsoll
