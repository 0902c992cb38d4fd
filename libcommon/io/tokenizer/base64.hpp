#pragma once
/// Base64, as rank files and tokenizer.json have it.

#include <optional>
#include <string>
#include <string_view>

namespace plimsoll
{

/// Bytes of `text`: digits in groups of four with padding, nothing else. Empty text is none.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace plimsoll
