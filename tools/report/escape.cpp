#include <cstdint>

#include "svg.hpp"

namespace plimsoll
{

namespace
{

constexpr std::string_view replacement = "\xef\xbf\xbd";

bool is_continuation(char c) { return (static_cast<unsigned char>(c) & 0xc0U) == 0x80; }

/// Bytes of the UTF-8 character at the front of `text`; 0 when it is none.
std::size_t utf8_length(std::string_view text)
{
    const auto first = static_cast<unsigned char>(text[0]);
    const std::size_t length = first < 0x80   ? 1
                               : first < 0xc2 ? 0
                               : first < 0xe0 ? 2
                               : first < 0xf0 ? 3
                               : first < 0xf5 ? 4
                                              : 0;
    if (length == 0 || length > text.size()) { return 0; }
    std::uint32_t code = length == 1 ? first : first & (0x7fU >> length);
    for (std::size_t k = 1; k < length; ++k)
    {
        if (!is_continuation(text[k])) { return 0; }
        code = (code << 6) | (static_cast<unsigned char>(text[k]) & 0x3fU);
    }
    const bool too_long = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
    const bool no_character = code > 0x10ffff || (code >= 0xd800 && code < 0xe000) || (code >= 0x80 && code < 0xa0);
    return too_long || no_character ? 0 : length;
}

}  // namespace

std::string escape_html(std::string_view text)
{
    std::string out;
    out.reserve(text.size());
    while (!text.empty())
    {
        const std::size_t length = utf8_length(text);
        const char c = text[0];
        if (length == 0 || c == '\x7f' || (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t'))
        {
            out += replacement;
        }
        else if (c == '&') { out += "&amp;"; }
        else if (c == '<') { out += "&lt;"; }
        else if (c == '>') { out += "&gt;"; }
        else if (c == '"') { out += "&quot;"; }
        else if (c == '\'') { out += "&#39;"; }
        else { out += text.substr(0, length); }
        text.remove_prefix(length == 0 ? 1 : length);
    }
    return out;
}

}  // namespace plimsoll
