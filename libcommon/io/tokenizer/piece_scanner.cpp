#include "io/tokenizer/piece_scanner.hpp"

#include <algorithm>

namespace plimsoll
{

namespace
{

constexpr ClassSet upper_side = one_class(class_upper) | one_class(class_letter) | mark_set;
constexpr ClassSet lower_side = one_class(class_lower) | one_class(class_letter) | mark_set;

ClassSet set_of(std::uint8_t properties) { return 1U << (properties & 15); }

// End of the run of characters of `set`.
const char* skip_set(const UnicodeTables& tables, const char* at, const char* end, ClassSet set)
{
    while (at < end)
    {
        const CodePoint c = decode_utf8(at);
        if ((set_of(tables.properties(c.value)) & set) == 0) { break; }
        at += c.bytes;
    }
    return at;
}

const char* skip_newlines(const char* at, const char* end, bool with_slash)
{
    while (at < end && (*at == '\n' || *at == '\r' || (with_slash && *at == '/'))) { ++at; }
    return at;
}

struct BlankRun
{
    const char* end;
    const char* last;         ///< its last character
    const char* newline_end;  ///< behind its last CR or LF; null without one
};

BlankRun find_blank_run(const UnicodeTables& tables, const char* at, const char* end)
{
    BlankRun run{at, at, nullptr};
    while (run.end < end)
    {
        const CodePoint c = decode_utf8(run.end);
        const ClassSet set = set_of(tables.properties(c.value));
        if ((set & space_set) == 0) { break; }
        run.last = run.end;
        run.end += c.bytes;
        if ((set & newline_set) != 0) { run.newline_end = run.end; }
    }
    return run;
}

// \s*[\r\n]+|\s+(?!\S)|\s+
const char* blank_piece(const BlankRun& run, const char* at, const char* end, bool newlines)
{
    if (newlines && run.newline_end != nullptr) { return run.newline_end; }
    return run.end == end || run.last == at ? run.end : run.last;
}

}  // namespace

const char* match_contraction(const char* at, const char* end, bool caseless)
{
    const auto letter = [&](std::ptrdiff_t i)
    {
        if (end - at <= i) { return '\0'; }
        const char c = at[i];
        return caseless && c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
    };
    const char first = letter(1);
    switch (first)
    {
        case 's':
        case 't':
        case 'm':
        case 'd': return at + 2;
        case 'l': return letter(2) == 'l' ? at + 3 : at;
        case 'v':
        case 'r': return letter(2) == 'e' ? at + 3 : at;
        case '\xC5': return caseless && letter(2) == '\xBF' ? at + 3 : at;  // U+017F
        default: return at;
    }
}

PieceScanner::PieceScanner(const SplitRules& rules)
    : rules_(rules),
      tables_(UnicodeTables::get()),
      letters_(rules.letters()),
      punct_(rules.punct())
{
}

std::ptrdiff_t PieceScanner::contraction(const char* at, const char* end) const
{
    return match_contraction(at, end, rules_.contractions != Contractions::ascii) - at;
}

const char* PieceScanner::next(const char* at, const char* end) const
{
    const CodePoint c = decode_utf8(at);
    const std::uint8_t properties = tables_.properties(c.value);
    const bool is_apart = rules_.contractions == Contractions::ascii || rules_.contractions == Contractions::caseless;
    if (*at == '\'' && is_apart)
    {
        const std::ptrdiff_t bytes = contraction(at, end);
        if (bytes > 0) { return at + bytes; }
    }
    if (rules_.han_apart && (properties & property_han) != 0)
    {
        while (at < end)
        {
            const CodePoint han = decode_utf8(at);
            if ((tables_.properties(han.value) & property_han) == 0) { break; }
            at += han.bytes;
        }
        return at;
    }
    const char* stop = rules_.case_aware ? cased_word(at, end, properties) : word(at, end, properties);
    if (stop != at) { return stop; }
    stop = numbers(at, end, set_of(properties));
    if (stop != at) { return stop; }
    stop = punctuation(at, end);
    if (stop != at) { return stop; }
    return (set_of(properties) & space_set) != 0 ? blank(at, end) : at + c.bytes;
}

// `at` where there is no word.
const char* PieceScanner::word(const char* at, const char* end, std::uint8_t first) const
{
    const ClassSet set = set_of(first);
    if ((set & letters_) != 0) { return skip_set(tables_, at, end, letters_); }
    const bool may_lead = rules_.any_prefix ? (set & (newline_set | number_set)) == 0 : *at == ' ';
    if (!may_lead) { return at; }
    const char* begin = at + decode_utf8(at).bytes;
    const char* stop = skip_set(tables_, begin, end, letters_);
    return stop != begin ? stop : at;
}

bool PieceScanner::is_cased(std::uint8_t properties, ClassSet set) const
{
    return (set_of(properties) & set) != 0 && !(rules_.han_apart && (properties & property_han) != 0);
}

// U*L+ (with_lower) or U+L*, where U is upper_side and L lower_side. `at` without a match.
const char* PieceScanner::cased_run(const char* at, const char* end, bool with_lower) const
{
    const char* stop = at;
    const char* both_end = at;  // behind the last character that is in U and in L
    while (stop < end)
    {
        const CodePoint c = decode_utf8(stop);
        const std::uint8_t properties = tables_.properties(c.value);
        if (!is_cased(properties, upper_side)) { break; }
        stop += c.bytes;
        if (is_cased(properties, lower_side)) { both_end = stop; }
    }
    const char* lower = stop;
    while (lower < end)
    {
        const CodePoint c = decode_utf8(lower);
        if (!is_cased(tables_.properties(c.value), lower_side)) { break; }
        lower += c.bytes;
    }
    // Without a lower letter behind, U* gives characters back until the last of both kinds is L's.
    if (with_lower) { return lower != stop ? lower : both_end; }
    return stop == at ? at : lower;
}

const char* PieceScanner::cased_word(const char* at, const char* end, std::uint8_t first) const
{
    const bool may_lead = (set_of(first) & (newline_set | number_set | letter_set)) == 0;
    const char* const behind = at + decode_utf8(at).bytes;
    for (const bool with_lower : {true, false})
    {
        const char* stop = may_lead ? cased_run(behind, end, with_lower) : behind;
        bool found = may_lead && stop != behind;
        if (!found)
        {
            stop = cased_run(at, end, with_lower);
            found = stop != at;
        }
        if (!found) { continue; }
        const bool may_follow = rules_.contractions == Contractions::suffix && stop < end && *stop == '\'';
        return may_follow ? stop + contraction(stop, end) : stop;
    }
    return at;
}

const char* PieceScanner::numbers(const char* at, const char* end, ClassSet first) const
{
    if (rules_.digits == 0)
    {
        const char* begin = *at == ' ' ? at + 1 : at;
        const char* stop = skip_set(tables_, begin, end, number_set);
        return stop != begin ? stop : at;
    }
    if ((first & number_set) == 0) { return at; }
    const char* stop = at;
    for (int i = 0; i < rules_.digits && stop < end; ++i)
    {
        const CodePoint c = decode_utf8(stop);
        if ((set_of(tables_.properties(c.value)) & number_set) == 0) { break; }
        stop += c.bytes;
    }
    return stop;
}

const char* PieceScanner::punctuation(const char* at, const char* end) const
{
    const char* begin = *at == ' ' ? at + 1 : at;
    const char* stop = skip_set(tables_, begin, end, punct_);
    if (stop == begin) { return at; }
    return rules_.punct_tail == PunctTail::none ? stop
                                                : skip_newlines(stop, end, rules_.punct_tail == PunctTail::crlf_slash);
}

const char* PieceScanner::blank(const char* at, const char* end) const
{
    const BlankRun run = find_blank_run(tables_, at, end);
    if (rules_.blank_end && run.end == end) { return end; }
    return blank_piece(run, at, end, rules_.newlines);
}

namespace
{

bool is_deepseek_cjk(std::uint32_t c) { return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF); }

bool is_ascii_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_ascii_punct(char c)
{
    return (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
}

}  // namespace

const char* DeepseekScanner::next(const char* at, const char* end)
{
    const CodePoint c = decode_utf8(at);
    if (tables_.char_class(c.value) == class_number)
    {
        const char* stop = at + c.bytes;
        for (int i = 1; i < 3 && stop < end; ++i)
        {
            const CodePoint more = decode_utf8(stop);
            if (tables_.char_class(more.value) != class_number) { break; }
            stop += more.bytes;
        }
        return stop;
    }
    if (is_deepseek_cjk(c.value))
    {
        const char* stop = at + c.bytes;
        while (stop < end)
        {
            const CodePoint more = decode_utf8(stop);
            if (!is_deepseek_cjk(more.value)) { break; }
            stop += more.bytes;
        }
        return stop;
    }
    if (stretch_end_ == nullptr || stretch_end_ <= at)
    {
        stretch_end_ = at;
        while (stretch_end_ < end)
        {
            const CodePoint more = decode_utf8(stretch_end_);
            if (is_deepseek_cjk(more.value) || tables_.char_class(more.value) == class_number) { break; }
            stretch_end_ += more.bytes;
        }
    }
    const char* stop = match(at, stretch_end_);
    if (stop != at) { return stop; }
    // What no alternative matches stays together.
    while (stop < stretch_end_ && match(stop, stretch_end_) == stop) { stop += decode_utf8(stop).bytes; }
    return stop;
}

// The third pattern at `at`; `at` itself where it does not match.
const char* DeepseekScanner::match(const char* at, const char* end) const
{
    const CodePoint c = decode_utf8(at);
    const ClassSet set = set_of(tables_.properties(c.value));
    if (is_ascii_punct(*at) && end - at > 1 && is_ascii_letter(at[1]))
    {
        return std::find_if_not(at + 1, end, is_ascii_letter);
    }
    constexpr ClassSet word_set = letter_set | mark_set;
    if ((set & word_set) != 0) { return skip_set(tables_, at, end, word_set); }
    if ((set & (newline_set | punct_symbol_set)) == 0)
    {
        const char* stop = skip_set(tables_, at + c.bytes, end, word_set);
        if (stop != at + c.bytes) { return stop; }
    }
    const char* begin = *at == ' ' ? at + 1 : at;
    const char* stop = skip_set(tables_, begin, end, punct_symbol_set);
    if (stop != begin) { return skip_newlines(stop, end, false); }
    if ((set & space_set) == 0) { return at; }
    return blank_piece(find_blank_run(tables_, at, end), at, end, true);
}

}  // namespace plimsoll
