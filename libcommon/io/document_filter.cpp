#include "io/document_filter.hpp"

#include <algorithm>
#include <numeric>
#include <unordered_set>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/cli.hpp"
#include "base/units.hpp"
#include "io/tokenizer/unicode.hpp"

namespace plimsoll
{

namespace
{

struct CharacterCounts
{
    std::int64_t all = 0;
    std::int64_t alphabetic = 0;
    std::int64_t digits = 0;
    std::int64_t white_space = 0;
};

CharacterCounts characters_of(std::string_view text)
{
    const UnicodeTables& tables = UnicodeTables::get();
    std::array<std::int64_t, 16> by_class{};
    const char* const end = text.data() + text.size();
    for (const char* at = text.data(); at < end;)
    {
        const CodePoint point = decode_utf8(at);
        ++by_class[tables.char_class(point.value)];
        at += point.bytes;
    }
    CharacterCounts counts;
    counts.all = std::accumulate(by_class.begin(), by_class.end(), std::int64_t{0});
    counts.alphabetic = by_class[class_lower] + by_class[class_upper] + by_class[class_letter] + by_class[class_mark];
    counts.digits = by_class[class_number];
    counts.white_space = by_class[class_space] + by_class[class_newline];
    return counts;
}

}  // namespace

bool DocumentFilterOptions::any_of_text() const
{
    return min_bytes > 0 || max_bytes > 0 || min_alphabetic > 0 || max_digits < 1 || max_white_space < 1 ||
           max_symbols < 1 || max_line_bytes > 0 || max_repeated_lines < 1;
}

const char* drop_reason_name(DropReason reason)
{
    switch (reason)
    {
        case DropReason::none: return "none";
        case DropReason::min_bytes: return "min-bytes";
        case DropReason::max_bytes: return "max-bytes";
        case DropReason::min_tokens: return "min-tokens";
        case DropReason::max_tokens: return "max-tokens";
        case DropReason::alphabetic: return "min-alphabetic";
        case DropReason::digits: return "max-digits";
        case DropReason::white_space: return "max-white-space";
        case DropReason::symbols: return "max-symbols";
        case DropReason::line_bytes: return "max-line-bytes";
        default: return "max-repeated-lines";
    }
}

std::int64_t DropCounts::total() const
{
    return std::accumulate(by_reason.begin() + 1, by_reason.end(), std::int64_t{0});
}

void DropCounts::add(const DropCounts& other)
{
    for (std::size_t i = 0; i < by_reason.size(); ++i) { by_reason[i] += other.by_reason[i]; }
}

DropReason DocumentFilter::reason_to_drop(std::int64_t tokens) const
{
    if (tokens < options_.min_tokens) { return DropReason::min_tokens; }
    if (options_.max_tokens > 0 && tokens > options_.max_tokens) { return DropReason::max_tokens; }
    return DropReason::none;
}

DropReason DocumentFilter::reason_to_drop(std::string_view text) const
{
    const auto bytes = static_cast<std::int64_t>(text.size());
    if (bytes < options_.min_bytes) { return DropReason::min_bytes; }
    if (options_.max_bytes > 0 && bytes > options_.max_bytes) { return DropReason::max_bytes; }
    const DropReason reason = reason_of_characters(text);
    return reason != DropReason::none ? reason : reason_of_lines(text);
}

DropReason DocumentFilter::reason_of_characters(std::string_view text) const
{
    const bool any = options_.min_alphabetic > 0 || options_.max_digits < 1 || options_.max_white_space < 1 ||
                     options_.max_symbols < 1;
    if (!any || text.empty()) { return DropReason::none; }
    const CharacterCounts counts = characters_of(text);
    const auto share = [&](std::int64_t num) { return static_cast<double>(num) / static_cast<double>(counts.all); };
    if (share(counts.alphabetic) < options_.min_alphabetic) { return DropReason::alphabetic; }
    if (share(counts.digits) > options_.max_digits) { return DropReason::digits; }
    if (share(counts.white_space) > options_.max_white_space) { return DropReason::white_space; }
    const std::int64_t symbols = counts.all - counts.alphabetic - counts.digits - counts.white_space;
    return share(symbols) > options_.max_symbols ? DropReason::symbols : DropReason::none;
}

DropReason DocumentFilter::reason_of_lines(std::string_view text) const
{
    if (options_.max_line_bytes == 0 && options_.max_repeated_lines >= 1) { return DropReason::none; }
    std::unordered_set<std::uint64_t> seen;
    std::int64_t lines = 0;
    std::int64_t repeated = 0;
    while (!text.empty())
    {
        const std::size_t feed = text.find('\n');
        std::string_view line = text.substr(0, feed);
        text.remove_prefix(feed == std::string_view::npos ? text.size() : feed + 1);
        if (!line.empty() && line.back() == '\r') { line.remove_suffix(1); }
        const bool long_line =
            options_.max_line_bytes > 0 && static_cast<std::int64_t>(line.size()) > options_.max_line_bytes;
        if (long_line) { return DropReason::line_bytes; }
        if (options_.max_repeated_lines >= 1 || line.find_first_not_of(" \t") == std::string_view::npos) { continue; }
        ++lines;
        repeated += seen.insert(XXH3_64bits(line.data(), line.size())).second ? 0 : 1;
    }
    const bool many = static_cast<double>(repeated) > options_.max_repeated_lines * static_cast<double>(lines);
    return options_.max_repeated_lines < 1 && many ? DropReason::repeated_lines : DropReason::none;
}

std::vector<std::pair<std::string, std::string>> limits_text(const DocumentFilterOptions& filter)
{
    std::vector<std::pair<std::string, std::string>> limits;
    const auto add = [&](DropReason reason, double value, double none)
    {
        if (value != none) { limits.emplace_back(drop_reason_name(reason), number_text(value)); }
    };
    add(DropReason::min_bytes, static_cast<double>(filter.min_bytes), 0);
    add(DropReason::max_bytes, static_cast<double>(filter.max_bytes), 0);
    add(DropReason::min_tokens, static_cast<double>(filter.min_tokens), 0);
    add(DropReason::max_tokens, static_cast<double>(filter.max_tokens), 0);
    add(DropReason::alphabetic, filter.min_alphabetic, 0);
    add(DropReason::digits, filter.max_digits, 1);
    add(DropReason::white_space, filter.max_white_space, 1);
    add(DropReason::symbols, filter.max_symbols, 1);
    add(DropReason::line_bytes, static_cast<double>(filter.max_line_bytes), 0);
    add(DropReason::repeated_lines, filter.max_repeated_lines, 1);
    return limits;
}

void declare_document_filter(OptionSet& options, DocumentFilterOptions& filter)
{
    options.add_count("", "min-bytes", filter.min_bytes, "drop shorter documents").unit("bytes").range(0);
    options.add_count("", "max-bytes", filter.max_bytes, "drop longer ones; 0: no limit").unit("bytes").range(0);
    options.add_count("", "min-tokens", filter.min_tokens, "the same after encoding, with the end")
        .unit("tokens")
        .range(0);
    options.add_count("", "max-tokens", filter.max_tokens, "0: no limit").unit("tokens").range(0);
    options.add_number("", "min-alphabetic", filter.min_alphabetic, "least share of letters and marks among characters")
        .range(0, 1);
    options.add_number("", "max-digits", filter.max_digits, "largest share of digits").range(0, 1);
    options.add_number("", "max-white-space", filter.max_white_space, "largest share of white space").range(0, 1);
    options.add_number("", "max-symbols", filter.max_symbols, "largest share of all other characters").range(0, 1);
    options.add_count("", "max-line-bytes", filter.max_line_bytes, "longest line; 0: no limit").unit("bytes").range(0);
    options
        .add_number("", "max-repeated-lines", filter.max_repeated_lines,
                    "largest share of lines that stood in the document before")
        .range(0, 1);
}

}  // namespace plimsoll
