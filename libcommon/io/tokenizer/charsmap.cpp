#include "io/tokenizer/charsmap.hpp"

#include <cstring>

#include "base/error.hpp"

namespace plimsoll
{

namespace
{

// A unit of Darts: the label of the node in the low byte (its top bit marks a value), bit 8 whether a rule ends here, the
// distance to the children in bits 10 to 30, times 256 where bit 9 is set.
bool darts_ends(std::uint32_t unit) { return (unit >> 8 & 1U) != 0; }
std::uint32_t darts_value(std::uint32_t unit) { return unit & 0x7FFFFFFFU; }
std::uint32_t darts_label(std::uint32_t unit) { return unit & 0x800000FFU; }
std::uint32_t darts_offset(std::uint32_t unit) { return unit >> 10 << ((unit & 1U << 9) >> 6); }

}  // namespace

Charsmap::Charsmap(std::string_view blob)
{
    if (blob.empty()) { return; }
    std::uint32_t trie_bytes = 0;
    VALIDATE(blob.size() > 4, FormatError, "charsmap of {} bytes is truncated", blob.size());
    std::memcpy(&trie_bytes, blob.data(), 4);
    VALIDATE(trie_bytes < blob.size() - 4 + 1 && trie_bytes % 4 == 0 && trie_bytes > 0, FormatError,
             "charsmap is broken (a trie of {} bytes in a field of {})", trie_bytes, blob.size());
    units_.resize(trie_bytes / 4);
    std::memcpy(units_.data(), blob.data() + 4, trie_bytes);
    replacements_ = blob.substr(4 + std::size_t{trie_bytes});
}

std::string_view Charsmap::replacement(std::uint32_t value) const
{
    if (value >= replacements_.size()) { return {}; }
    const std::size_t end = replacements_.find('\0', value);
    return std::string_view(replacements_).substr(value, end == std::string::npos ? end : end - value);
}

template<class Found>
void Charsmap::walk(std::string_view text, std::size_t position, Found&& found) const
{
    if (units_.empty()) { return; }
    std::size_t node = darts_offset(units_[0]);
    for (std::size_t i = position; i < text.size(); ++i)
    {
        const auto byte = static_cast<unsigned char>(text[i]);
        node ^= byte;
        if (node >= units_.size() || darts_label(units_[node]) != byte) { return; }
        const std::uint32_t unit = units_[node];
        node ^= darts_offset(unit);
        if (darts_ends(unit))
        {
            if (node >= units_.size() || !found(i + 1 - position, darts_value(units_[node]))) { return; }
        }
    }
}

Charsmap::Match Charsmap::longest(std::string_view text, std::size_t position) const
{
    std::size_t best = 0;
    std::uint32_t best_value = 0;
    walk(text, position,
         [&](std::size_t length, std::uint32_t value)
         {
             best = length;
             best_value = value;
             return true;
         });
    return best == 0 ? Match{} : Match{best, replacement(best_value)};
}

Charsmap::Match Charsmap::shortest(std::string_view text, std::size_t position) const
{
    Match match;
    walk(text, position,
         [&](std::size_t length, std::uint32_t value)
         {
             match = {length, replacement(value)};
             return false;
         });
    return match;
}

bool Charsmap::touches_ascii(unsigned char byte) const
{
    if (units_.empty()) { return false; }
    std::size_t node = darts_offset(units_[0]) ^ byte;
    if (node >= units_.size() || darts_label(units_[node]) != byte) { return false; }
    if (darts_ends(units_[node])) { return true; }
    node ^= darts_offset(units_[node]);
    for (unsigned next = 0; next < 0x80; ++next)
    {
        const std::size_t child = node ^ next;
        if (child < units_.size() && darts_label(units_[child]) == next) { return true; }
    }
    return false;
}

}  // namespace plimsoll
