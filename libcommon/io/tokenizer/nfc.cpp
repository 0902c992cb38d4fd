#include "io/tokenizer/nfc.hpp"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <vector>

#include "io/tokenizer/unicode.hpp"
#include "io/tokenizer/unicode_data.hpp"

namespace plimsoll
{

namespace
{

// Hangul syllables are computed (Unicode 16, section 3.12).
constexpr std::uint32_t hangul_s = 0xAC00;
constexpr std::uint32_t hangul_l = 0x1100;
constexpr std::uint32_t hangul_v = 0x1161;
constexpr std::uint32_t hangul_t = 0x11A7;
constexpr std::uint32_t num_l = 19;
constexpr std::uint32_t num_v = 21;
constexpr std::uint32_t num_t = 28;

struct NfcTables
{
    std::unordered_map<std::uint32_t, std::pair<std::uint32_t, std::uint32_t>> decompositions;
    std::unordered_map<std::uint64_t, std::uint32_t> compositions;

    static const NfcTables& get()
    {
        static const NfcTables tables;
        return tables;
    }

    NfcTables()
    {
        const std::uint32_t* data = unicode_data::decompositions;
        for (std::size_t i = 0; i < unicode_data::decompositions_size; i += 3)
        {
            const std::uint32_t composed = data[i] & 0x7FFFFFFFU;
            decompositions[composed] = {data[i + 1], data[i + 2]};
            if (composed != data[i]) { compositions[key(data[i + 1], data[i + 2])] = composed; }
        }
    }

    static std::uint64_t key(std::uint32_t first, std::uint32_t second)
    {
        return static_cast<std::uint64_t>(first) << 32 | second;
    }
};

std::uint8_t combining_class(std::uint32_t c)
{
    if (c < 0x300) { return 0; }
    const std::uint32_t* begin = unicode_data::combining;
    const std::uint32_t* found = std::upper_bound(begin, begin + unicode_data::combining_size, c << 8 | 0xFF);
    return static_cast<std::uint8_t>(found[-1] & 0xFF);
}

struct NfcChar
{
    std::uint32_t value;
    std::uint8_t combining;
};

void append_utf8(std::uint32_t c, std::string& out)
{
    if (c < 0x80) { out.push_back(static_cast<char>(c)); }
    else if (c < 0x800)
    {
        out.push_back(static_cast<char>(0xC0 | c >> 6));
        out.push_back(static_cast<char>(0x80 | (c & 63)));
    }
    else if (c < 0x10000)
    {
        out.push_back(static_cast<char>(0xE0 | c >> 12));
        out.push_back(static_cast<char>(0x80 | (c >> 6 & 63)));
        out.push_back(static_cast<char>(0x80 | (c & 63)));
    }
    else
    {
        out.push_back(static_cast<char>(0xF0 | c >> 18));
        out.push_back(static_cast<char>(0x80 | (c >> 12 & 63)));
        out.push_back(static_cast<char>(0x80 | (c >> 6 & 63)));
        out.push_back(static_cast<char>(0x80 | (c & 63)));
    }
}

void decompose(std::uint32_t c, std::vector<NfcChar>& out)
{
    if (c - hangul_s < num_l * num_v * num_t)
    {
        const std::uint32_t s = c - hangul_s;
        out.push_back({hangul_l + s / (num_v * num_t), 0});
        out.push_back({hangul_v + s % (num_v * num_t) / num_t, 0});
        if (s % num_t != 0) { out.push_back({hangul_t + s % num_t, 0}); }
        return;
    }
    const auto& table = NfcTables::get().decompositions;
    const auto found = table.find(c);
    if (found == table.end())
    {
        out.push_back({c, combining_class(c)});
        return;
    }
    decompose(found->second.first, out);
    if (found->second.second != 0) { decompose(found->second.second, out); }
}

// 0 where the two do not compose.
std::uint32_t compose(std::uint32_t first, std::uint32_t second)
{
    if (first - hangul_l < num_l && second - hangul_v < num_v)
    {
        return hangul_s + ((first - hangul_l) * num_v + second - hangul_v) * num_t;
    }
    const bool open_syllable = first - hangul_s < num_l * num_v * num_t && (first - hangul_s) % num_t == 0;
    if (open_syllable && second > hangul_t && second < hangul_t + num_t) { return first + second - hangul_t; }
    const auto& table = NfcTables::get().compositions;
    const auto found = table.find(NfcTables::key(first, second));
    return found == table.end() ? 0 : found->second;
}

void reorder(std::vector<NfcChar>& chars)
{
    for (std::size_t i = 0; i < chars.size();)
    {
        if (chars[i].combining == 0)
        {
            ++i;
            continue;
        }
        std::size_t end = i;
        while (end < chars.size() && chars[end].combining != 0) { ++end; }
        std::stable_sort(chars.begin() + static_cast<std::ptrdiff_t>(i),
                         chars.begin() + static_cast<std::ptrdiff_t>(end),
                         [](const NfcChar& a, const NfcChar& b) { return a.combining < b.combining; });
        i = end;
    }
}

void compose_all(std::vector<NfcChar>& chars)
{
    std::size_t starter = chars.size();
    std::size_t kept = 0;
    int last = -1;  // combining class of what was kept last behind the starter
    for (std::size_t i = 0; i < chars.size(); ++i)
    {
        const NfcChar c = chars[i];
        const bool is_free = starter < chars.size() && last < static_cast<int>(c.combining);
        const std::uint32_t composed = is_free ? compose(chars[starter].value, c.value) : 0;
        if (composed != 0)
        {
            chars[starter].value = composed;
            continue;
        }
        if (c.combining == 0)
        {
            starter = kept;
            last = -1;
        }
        else { last = c.combining; }
        chars[kept++] = c;
    }
    chars.resize(kept);
}

// Part of the text that no neighbour can change.
void append_nfc_run(std::string_view text, std::string& out)
{
    std::vector<NfcChar> chars;
    for (std::size_t i = 0; i < text.size();)
    {
        const CodePoint c = decode_utf8(text.data() + i);
        decompose(c.value, chars);
        i += c.bytes;
    }
    reorder(chars);
    compose_all(chars);
    for (const NfcChar& c : chars) { append_utf8(c.value, out); }
}

bool needs_check(std::uint32_t c) { return (UnicodeTables::get().properties(c) & property_nfc_check) != 0; }

// Start of the first character that wants a look, or the end. Below U+0300 (lead byte 0xCC) there is none.
const char* find_check(const char* at, const char* end)
{
    while (at < end)
    {
        std::uint64_t eight = 0;
        if (end - at >= 8 && (std::memcpy(&eight, at, 8), (eight & 0x8080808080808080U) == 0))
        {
            at += 8;
            continue;
        }
        const auto lead = static_cast<unsigned char>(*at);
        if (lead < 0x80)
        {
            ++at;
            continue;
        }
        const CodePoint c = decode_utf8(at);
        if (lead >= 0xCC && needs_check(c.value)) { return at; }
        at += c.bytes;
    }
    return end;
}

}  // namespace

bool is_surely_nfc(std::string_view text)
{
    const char* end = text.data() + text.size();
    return find_check(text.data(), end) == end;
}

void append_nfc(std::string_view text, std::string& out)
{
    const char* at = text.data();
    const char* const end = at + text.size();
    while (at < end)
    {
        const char* check = find_check(at, end);
        if (check == end) { break; }
        const char* run = check > at ? previous_utf8(check) : check;
        out.append(at, run);
        const char* run_end = check;
        while (run_end < end)
        {
            const CodePoint c = decode_utf8(run_end);
            if (!needs_check(c.value)) { break; }
            run_end += c.bytes;
        }
        append_nfc_run({run, static_cast<std::size_t>(run_end - run)}, out);
        at = run_end;
    }
    out.append(at, end);
}

}  // namespace plimsoll
