#include "io/tokenizer/regex_dialect.hpp"

#include <algorithm>
#include <cctype>

namespace plimsoll
{

namespace
{

/// Length of the escape at the start of `rest`; 0 when the engines differ in it. \w has marks in Oniguruma and none in PCRE2, \h is a
/// hexadecimal digit there and blank here, \v one character there, scripts are PCRE2's script extensions; of \p categories pass.
std::size_t escape_length(std::string_view rest)
{
    if (rest.size() < 2) { return 0; }
    const char letter = rest[1];
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) { return 2; }
    if (std::string_view("sSdDnrtfaeAz").find(letter) != std::string_view::npos) { return 2; }
    const bool braced = rest.size() > 2 && rest[2] == '{';
    const std::size_t end = braced ? rest.find('}') : std::string_view::npos;
    if (letter == 'x') { return braced ? (end == std::string_view::npos ? 0 : end + 1) : 2; }
    if ((letter != 'p' && letter != 'P') || end == std::string_view::npos) { return 0; }
    const std::string_view name = rest.substr(3, end - 3);
    const bool category = !name.empty() && name.size() <= 2 &&
                          std::string_view("CLMNPSZ").find(name[0]) != std::string_view::npos &&
                          (name.size() == 1 || std::islower(static_cast<unsigned char>(name[1])) != 0);
    return category ? end + 1 : 0;
}

std::string escape_text(std::string_view rest)
{
    const bool braced = rest.size() > 2 && rest[2] == '{';
    return std::string(rest.substr(0, braced ? rest.find('}') + 1 : 2));
}

/// Of the brace at the start of `rest`: an interval that means the same, or a plain brace.
std::string foreign_interval(std::string_view rest)
{
    const std::size_t end = rest.find_first_not_of("0123456789,", 1);
    if (end == std::string_view::npos || rest[end] != '}' || end == 1) { return ""; }
    const std::string_view inside = rest.substr(1, end - 1);
    const char next = end + 1 < rest.size() ? rest[end + 1] : '\0';
    const bool lazy_of_exact = next == '?' && inside.find(',') == std::string_view::npos;
    if (inside[0] != ',' && next != '+' && !lazy_of_exact) { return ""; }
    return std::string(rest.substr(0, end + (next == '+' || next == '?' ? 2 : 1)));
}

std::string foreign_group(std::string_view rest)
{
    if (rest.size() < 2 || rest[1] != '?') { return rest.size() > 1 && rest[1] == '*' ? "(*" : ""; }
    for (const char* same : {"(?:", "(?=", "(?!", "(?<=", "(?<!", "(?>", "(?i:", "(?i)"})
    {
        if (rest.starts_with(same)) { return ""; }
    }
    return std::string(rest.substr(0, 3));
}

/// Oniguruma folds characters that are several letters in another case (\u00DF and SS, the ligatures); PCRE2 one by one.
std::string foreign_folding(std::string_view pattern)
{
    if (pattern.find("(?i") == std::string_view::npos) { return ""; }
    std::string lower(pattern);
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    for (const char* several : {"ss", "ff", "fi", "fl", "st"})
    {
        if (lower.find(several) != std::string::npos) { return std::string("(?i with ") + several; }
    }
    const bool ascii =
        std::all_of(pattern.begin(), pattern.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
    return ascii ? "" : "(?i with letters beyond ASCII";
}

}  // namespace

std::string foreign_construct(std::string_view pattern)
{
    bool in_class = false;
    for (std::size_t at = 0; at < pattern.size();)
    {
        const std::string_view rest = pattern.substr(at);
        std::string foreign;
        std::size_t length = 1;
        if (rest[0] == '\\')
        {
            length = escape_length(rest);
            if (length == 0) { foreign = escape_text(rest); }
        }
        else if (in_class)
        {
            if (rest[0] == ']') { in_class = false; }
            if (rest[0] == '[') { foreign = "[ inside []"; }
            if (rest.starts_with("&&")) { foreign = "&&"; }
        }
        else if (rest[0] == '[')
        {
            in_class = true;
            length = rest.starts_with("[^") ? 2 : 1;
            if (rest.size() > length && rest[length] == ']') { ++length; }
        }
        else if (rest[0] == '{') { foreign = foreign_interval(rest); }
        else if (rest[0] == '(') { foreign = foreign_group(rest); }
        if (!foreign.empty()) { return foreign; }
        at += length;
    }
    return foreign_folding(pattern);
}

}  // namespace plimsoll
