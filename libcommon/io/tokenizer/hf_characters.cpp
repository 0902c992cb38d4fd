#include "io/tokenizer/hf_characters.hpp"

#include <algorithm>
#include <iterator>

#include "io/tokenizer/unicode.hpp"
#include "io/tokenizer/utf8_step.hpp"

namespace plimsoll
{

namespace
{

#include "io/tokenizer/hf_characters.inc"

enum HfBreak : std::uint32_t
{
    break_other,
    break_cr,
    break_lf,
    break_control,
    break_extend,
    break_zwj,
    break_regional,
    break_prepend,
    break_spacing,
    break_l,
    break_v,
    break_t,
    break_lv,
    break_lvt,
};
constexpr std::uint32_t pictograph_bit = 16;
constexpr std::uint32_t conjunct_bits = 96;
constexpr std::uint32_t conjunct_consonant = 32;
constexpr std::uint32_t conjunct_linker = 96;

template<std::size_t num>
std::uint32_t hf_value(const std::uint32_t (&changes)[num], std::uint32_t c)
{
    const auto* above = std::upper_bound(std::begin(changes), std::end(changes), c << 8 | 0xFFU);
    return above == std::begin(changes) ? 0 : *(above - 1) & 0xFFU;
}

/// What decides whether a cluster goes on, besides its last character.
struct HfCluster
{
    std::uint32_t last = 0;
    bool odd_regional = false;       ///< ends in an odd number of regional indicators
    bool after_pictograph = false;   ///< ends in a pictograph and Extend
    bool zwj_of_pictograph = false;  ///< the same and ZWJ
    bool after_consonant = false;    ///< ends in a consonant, extending characters and linkers
    bool linked = false;             ///< with a linker among these

    void take(std::uint32_t value)
    {
        const std::uint32_t kind = value & 15U;
        odd_regional = kind == break_regional && !odd_regional;
        zwj_of_pictograph = kind == break_zwj && after_pictograph;
        after_pictograph = (value & pictograph_bit) != 0 || (after_pictograph && kind == break_extend);
        const std::uint32_t conjunct = value & conjunct_bits;
        linked =
            conjunct == conjunct_linker ? after_consonant : conjunct != 0 && conjunct != conjunct_consonant && linked;
        after_consonant = conjunct == conjunct_consonant || (conjunct != 0 && after_consonant);
        last = kind;
    }

    bool joins(std::uint32_t value) const
    {
        const std::uint32_t kind = value & 15U;
        if (last == break_cr) { return kind == break_lf; }
        const auto is_control = [](std::uint32_t k) { return k == break_cr || k == break_lf || k == break_control; };
        if (is_control(last) || is_control(kind)) { return false; }
        if (last == break_l && (kind == break_l || kind == break_v || kind == break_lv || kind == break_lvt))
        {
            return true;
        }
        if ((last == break_lv || last == break_v) && (kind == break_v || kind == break_t)) { return true; }
        if ((last == break_lvt || last == break_t) && kind == break_t) { return true; }
        if (kind == break_extend || kind == break_zwj || kind == break_spacing || last == break_prepend)
        {
            return true;
        }
        if (linked && (value & conjunct_bits) == conjunct_consonant) { return true; }
        if (zwj_of_pictograph && (value & pictograph_bit) != 0) { return true; }
        return odd_regional && kind == break_regional;
    }
};

}  // namespace

std::size_t next_grapheme(std::string_view text, std::size_t at)
{
    const auto ascii = [&](std::size_t i) { return static_cast<unsigned char>(text[i]) < 0x80; };
    if (ascii(at) && (at + 1 == text.size() || (ascii(at + 1) && text[at + 1] != '\n'))) { return at + 1; }
    HfCluster cluster;
    Utf8Step step = utf8_step(text, at);
    cluster.take(hf_value(hf_grapheme_breaks, step.code_point));
    for (at += step.bytes; at < text.size(); at += step.bytes)
    {
        step = utf8_step(text, at);
        const std::uint32_t value = hf_value(hf_grapheme_breaks, step.code_point);
        if (!cluster.joins(value)) { break; }
        cluster.take(value);
    }
    return at;
}

bool is_hf_mark(std::uint32_t c) { return c >= 0x300 && hf_value(hf_marks, c) != 0; }

bool is_hf_punctuation(std::uint32_t c) { return hf_value(hf_punctuation, c) != 0; }

bool is_hf_space(std::uint32_t c) { return (1U << UnicodeTables::get().char_class(c) & space_set) != 0; }

void append_hf_lower(std::uint32_t c, std::string& out)
{
    if (c < 0x80) { return out.push_back(static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c)); }
    // The one character whose lower case is two.
    if (c == 0x130) { return void(out.append("i\xCC\x87")); }
    constexpr std::size_t num = std::size(hf_lower) / 4;
    std::size_t low = 0;
    for (std::size_t high = num; low < high;)
    {
        const std::size_t middle = (low + high) / 2;
        if (hf_lower[4 * middle] <= static_cast<std::int32_t>(c)) { low = middle + 1; }
        else { high = middle; }
    }
    // Two runs of step 2 may lie in one another, the odd characters in one and the even ones in the other.
    for (std::size_t back = 1; back <= 2 && back <= low; ++back)
    {
        const std::int32_t* run = hf_lower + 4 * (low - back);
        const auto at = static_cast<std::int32_t>(c);
        if (at <= run[1] && (at - run[0]) % run[2] == 0)
        {
            return append_utf8(static_cast<std::uint32_t>(at + run[3]), out);
        }
    }
    append_utf8(c, out);
}

}  // namespace plimsoll
