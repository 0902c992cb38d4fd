#include "io/utf8.hpp"

#include <simdjson.h>

#include <algorithm>
#include <cstring>

namespace plimsoll
{

namespace
{

/// Well-formed sequences by their first byte (Unicode 15, table 3-7): how many bytes follow, and the range of the
/// second, which alone excludes overlong forms, surrogates and everything above U+10FFFF.
struct Lead
{
    int following = 0;
    unsigned char second_min = 0x80;
    unsigned char second_max = 0xBF;
};

Lead lead_of(unsigned char byte)
{
    Lead lead;
    if (byte >= 0xC2 && byte <= 0xDF) { lead.following = 1; }
    else if (byte >= 0xE0 && byte <= 0xEF) { lead.following = 2; }
    else if (byte >= 0xF0 && byte <= 0xF4) { lead.following = 3; }
    if (byte == 0xE0) { lead.second_min = 0xA0; }
    if (byte == 0xED) { lead.second_max = 0x9F; }
    if (byte == 0xF0) { lead.second_min = 0x90; }
    if (byte == 0xF4) { lead.second_max = 0x8F; }
    return lead;
}

/// Code unit of four hex digits, -1 when they are none.
int hex4(const char* text)
{
    int value = 0;
    for (int i = 0; i < 4; ++i)
    {
        const char c = text[i];
        int digit = -1;
        if (c >= '0' && c <= '9') { digit = c - '0'; }
        else if (c >= 'a' && c <= 'f') { digit = c - 'a' + 10; }
        else if (c >= 'A' && c <= 'F') { digit = c - 'A' + 10; }
        if (digit < 0) { return -1; }
        value = value * 16 + digit;
    }
    return value;
}

bool is_high_surrogate(int unit) { return unit >= 0xD800 && unit <= 0xDBFF; }
bool is_low_surrogate(int unit) { return unit >= 0xDC00 && unit <= 0xDFFF; }

}  // namespace

bool is_valid_utf8(std::string_view text) { return simdjson::validate_utf8(text.data(), text.size()); }

std::int64_t replace_invalid_utf8(std::string_view text, std::string& out)
{
    std::int64_t replaced = 0;
    std::size_t at = 0;
    while (at < text.size())
    {
        const auto byte = static_cast<unsigned char>(text[at]);
        if (byte < 0x80)
        {
            out.push_back(text[at++]);
            continue;
        }
        const Lead lead = lead_of(byte);
        std::size_t end = at + 1;
        int found = 0;
        while (found < lead.following && end < text.size())
        {
            const auto next = static_cast<unsigned char>(text[end]);
            const unsigned char lowest = found == 0 ? lead.second_min : 0x80;
            const unsigned char highest = found == 0 ? lead.second_max : 0xBF;
            if (next < lowest || next > highest) { break; }
            ++end;
            ++found;
        }
        if (lead.following > 0 && found == lead.following) { out.append(text.substr(at, end - at)); }
        else
        {
            out.append("\xEF\xBF\xBD");
            ++replaced;
        }
        at = end;
    }
    return replaced;
}

std::int64_t replace_lone_surrogate_escapes(char* json, std::int64_t bytes)
{
    std::int64_t replaced = 0;
    char* at = json;
    char* const end = json + bytes;
    while (at < end)
    {
        at = static_cast<char*>(std::memchr(at, '\\', static_cast<std::size_t>(end - at)));
        if (at == nullptr) { break; }
        const int unit = end - at >= 6 && at[1] == 'u' ? hex4(at + 2) : -1;
        if (unit < 0)
        {
            at += 2;
            continue;
        }
        const bool paired = is_high_surrogate(unit) && end - at >= 12 && at[6] == '\\' && at[7] == 'u' &&
                            is_low_surrogate(hex4(at + 8));
        if (!paired && (is_high_surrogate(unit) || is_low_surrogate(unit)))
        {
            std::memcpy(at + 2, "fffd", 4);
            ++replaced;
        }
        at += paired ? 12 : 6;
    }
    return replaced;
}

}  // namespace plimsoll
