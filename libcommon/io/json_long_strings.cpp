#include "io/json_long_strings.hpp"

namespace plimsoll
{

namespace
{

/// The quote that closes the string that begins at `begin`, or npos: the first with an even number of backslashes before it.
std::size_t closing_quote(std::string_view json, std::size_t begin)
{
    for (std::size_t quote = json.find('"', begin); quote != std::string_view::npos; quote = json.find('"', quote + 1))
    {
        std::size_t first = quote;
        while (first > begin && json[first - 1] == '\\') { --first; }
        if ((quote - first) % 2 == 0) { return quote; }
    }
    return std::string_view::npos;
}

bool is_surrogate_escape(std::string_view raw, std::size_t at)
{
    return at + 4 <= raw.size() && raw[at] == '\\' && raw[at + 1] == 'u' &&
           (raw[at + 2] == 'd' || raw[at + 2] == 'D') &&
           ((raw[at + 3] >= '8' && raw[at + 3] <= '9') || ((raw[at + 3] | 0x20) >= 'a' && (raw[at + 3] | 0x20) <= 'f'));
}

/// Bytes of the escape at `at`; of a surrogate, of both.
std::size_t escape_bytes(std::string_view raw, std::size_t at)
{
    if (at + 1 >= raw.size() || raw[at + 1] != 'u') { return 2; }
    return is_surrogate_escape(raw, at) && is_surrogate_escape(raw, at + 6) ? 12 : 6;
}

}  // namespace

bool JsonLongStrings::take_out(std::string_view json)
{
    rest_.clear();
    raw_.clear();
    std::size_t kept = 0;  // of json, what is in rest_
    for (std::size_t quote = json.find('"'); quote != std::string_view::npos; quote = json.find('"', quote + 1))
    {
        const std::size_t begin = quote + 1;
        quote = closing_quote(json, begin);
        if (quote == std::string_view::npos)
        {
            raw_.clear();
            return false;
        }
        if (quote - begin <= limit_) { continue; }
        rest_.append(json.substr(kept, begin - kept));
        rest_.append(limit_ + 1 + raw_.size(), ' ');
        raw_.push_back(json.substr(begin, quote - begin));
        kept = quote;
    }
    if (!raw_.empty()) { rest_.append(json.substr(kept)); }
    return !raw_.empty();
}

std::string_view JsonLongStrings::rest(std::size_t padding)
{
    rest_.reserve(rest_.size() + padding);
    return rest_;
}

std::optional<std::size_t> JsonLongStrings::stands_for(std::string_view value) const
{
    if (value.size() <= limit_) { return std::nullopt; }
    return value.size() - limit_ - 1;
}

std::size_t json_string_part(std::string_view raw, std::size_t limit)
{
    if (raw.size() <= limit) { return raw.size(); }
    const std::string_view part = raw.substr(0, limit);
    std::size_t at = 0;
    for (std::size_t escape = part.find('\\'); escape < limit; escape = part.find('\\', at))
    {
        const std::size_t bytes = escape_bytes(raw, escape);
        if (escape + bytes > limit) { return escape; }
        at = escape + bytes;
    }
    std::size_t end = limit;
    while (end > at && (static_cast<unsigned char>(raw[end]) & 0xC0U) == 0x80U) { --end; }
    return end;
}

}  // namespace plimsoll
