#pragma once
/// One step through UTF-8, for loops that have to be fast.

#include <cstdint>
#include <string>
#include <string_view>

namespace plimsoll
{

struct Utf8Step
{
    std::uint32_t code_point = 0;
    std::uint32_t bytes = 1;
    bool valid = true;
};

/// The character at `position` (< text.size()). An ill-formed byte is a step of one byte, not valid, code point U+FFFD.
inline Utf8Step utf8_step(std::string_view text, std::size_t position)
{
    const auto* p = reinterpret_cast<const unsigned char*>(text.data()) + position;
    const std::size_t left = text.size() - position;
    const auto tail = [p](std::size_t i) { return (p[i] & 0xC0U) == 0x80U; };
    const std::uint32_t a = p[0];
    if (a < 0x80) { return {a, 1, true}; }
    if (a >= 0xC2 && a < 0xE0 && left >= 2 && tail(1)) { return {(a & 0x1FU) << 6 | (p[1] & 0x3FU), 2, true}; }
    if (a >= 0xE0 && a < 0xF0 && left >= 3 && tail(1) && tail(2))
    {
        const std::uint32_t c = (a & 0x0FU) << 12 | (p[1] & 0x3FU) << 6 | (p[2] & 0x3FU);
        if (c >= 0x800 && (c < 0xD800 || c > 0xDFFF)) { return {c, 3, true}; }
    }
    if (a >= 0xF0 && a < 0xF5 && left >= 4 && tail(1) && tail(2) && tail(3))
    {
        const std::uint32_t c = (a & 0x07U) << 18 | (p[1] & 0x3FU) << 12 | (p[2] & 0x3FU) << 6 | (p[3] & 0x3FU);
        if (c >= 0x10000 && c < 0x110000) { return {c, 4, true}; }
    }
    return {0xFFFD, 1, false};
}

inline void append_utf8(std::uint32_t c, std::string& out)
{
    if (c < 0x80) { out.push_back(static_cast<char>(c)); }
    else if (c < 0x800)
    {
        out.push_back(static_cast<char>(0xC0U | c >> 6));
        out.push_back(static_cast<char>(0x80U | (c & 0x3FU)));
    }
    else if (c < 0x10000)
    {
        out.push_back(static_cast<char>(0xE0U | c >> 12));
        out.push_back(static_cast<char>(0x80U | (c >> 6 & 0x3FU)));
        out.push_back(static_cast<char>(0x80U | (c & 0x3FU)));
    }
    else
    {
        out.push_back(static_cast<char>(0xF0U | c >> 18));
        out.push_back(static_cast<char>(0x80U | (c >> 12 & 0x3FU)));
        out.push_back(static_cast<char>(0x80U | (c >> 6 & 0x3FU)));
        out.push_back(static_cast<char>(0x80U | (c & 0x3FU)));
    }
}

}  // namespace plimsoll
