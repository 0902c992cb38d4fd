#include "io/tokenizer/onig_pattern.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "io/tokenizer/regex_split.hpp"

namespace plimsoll
{

namespace
{

/// What the pattern matches, parts joined by '|'.
std::string onig_matches(std::string_view pattern, std::string_view text)
{
    const RegexPattern compiled(pcre_of_oniguruma(pattern), false);
    RegexMatcher matcher(compiled);
    std::vector<RegexMatcher::Span> spans;
    matcher.split(text, spans);
    std::string found;
    for (const RegexMatcher::Span& span : spans)
    {
        if (span.is_match) { found.append(text.substr(span.begin, span.end - span.begin)).append(1, '|'); }
    }
    return found;
}

}  // namespace

TEST(OnigPattern, KeepsWhatBothEnginesReadAlike)
{
    for (const char* pattern :
         {R"('t| ?\p{L}+| ?\p{N}{1,3}|[^\p{L}\p{N}]++[\r\n]*+|x{2,}?)", R"((?i:'re|'ve)|[\p{Lu}\p{M}]?\p{Ll}*)",
          R"(\A.|(?<=\n)[^\n]{3}|(?<!a)(?>b)\z)", R"(\{2}|a{2,}?|\x{41}{2,3}|\x41)", R"([\[\]a-f&]\\w)", "(?i)ab", ""})
    {
        EXPECT_EQ(pcre_of_oniguruma(pattern), pattern);
        EXPECT_NO_THROW(RegexPattern(pcre_of_oniguruma(pattern), false)) << pattern;
    }
}

TEST(OnigPattern, WritesOutWhatTheEnginesReadDifferently)
{
    EXPECT_EQ(pcre_of_oniguruma("(a|[^-b\\]])+?"), "(?:a|[^\\-b\\]])+?");
    EXPECT_EQ(pcre_of_oniguruma("[]a]{x{,|a{"), "[\\]a]\\{x\\{,|a\\{");
    EXPECT_EQ(pcre_of_oniguruma("[\\d-x+-]"), "[\\d\\-x+\\-]");
    EXPECT_EQ(onig_matches(R"(\s+)", "a\u180e b\u00a0\u3000c\u001cd"), " |\u00a0\u3000|")
        << "U+180E is a space to PCRE2 only";
    EXPECT_EQ(onig_matches(R"(\S+)", "a\u180e b"), "a\u180e|b|");
    EXPECT_EQ(onig_matches(R"([\s!]+)", "a !\u180e b"), " !| |");
    EXPECT_EQ(onig_matches(R"([^\s!]+)", "a !\u180e b"), "a|\u180e|b|");
    EXPECT_EQ(onig_matches(R"([\S]+)", "a b"), "a|b|");
    EXPECT_EQ(onig_matches(R"([\S\n]+)", "a \nb"), "a|\nb|");
    EXPECT_EQ(onig_matches(R"([^\S\n]+)", "a \t\n b"), " \t| |");
    EXPECT_EQ(onig_matches(R"([^\S]+)", "a \n"), " \n|");
    EXPECT_EQ(onig_matches(R"(^.|.$)", "ab\ncd\n"), "a|b|c|d|");
    EXPECT_EQ(onig_matches(R"(\n$)", "a\n\nb\n"), "\n|") << "no line begins behind the last line end";
}

TEST(OnigPattern, NamesWhatTheyReadDifferently)
{
    // By Oniguruma's manual of its Ruby syntax and PCRE2's pcre2pattern(3); each was seen to differ, or is not known not to.
    for (const auto& row :
         std::initializer_list<std::pair<const char*, const char*>>{{R"(\w+)", R"(\w)"},
                                                                    {R"([^\W])", R"(\W)"},
                                                                    {R"(\bx)", R"(\b)"},
                                                                    {R"([\h])", R"(\h)"},
                                                                    {R"(\v)", R"(\v)"},
                                                                    {R"(x\Z)", R"(\Z)"},
                                                                    {R"((a)\1)", R"(\1)"},
                                                                    {R"(\p{Han}+)", R"(\p{Han})"},
                                                                    {R"(\pL)", R"(\p)"},
                                                                    {R"(\p{N}{1,3}+)", "{1,3}+"},
                                                                    {"a{2}+", "{2}+"},
                                                                    {"a{2}?", "{2}?"},
                                                                    {"a{,2}", "{,2}"},
                                                                    {R"([\p{L}&&[^a]])", "&&"},
                                                                    {"[a[bc]]", "[ inside []"},
                                                                    {"[[:alpha:]]", "[ inside []"},
                                                                    {R"(\xC3)", R"(\x)"},
                                                                    {R"([a-\d])", R"(-\d)"},
                                                                    {"[a", "[a"},
                                                                    {"a\\", "\\"},
                                                                    {"a*+*", "+*"},
                                                                    {"a(?i)b|c", "(?i"},
                                                                    {"(?m)a.b", "(?m"},
                                                                    {"(?s)a.b", "(?s"},
                                                                    {"(?<name>a)", "(?<"},
                                                                    {"(*UCP)a", "(*"},
                                                                    {"(?i:STRASSE)", "(?i with ss"},
                                                                    {"(?i)\u00DF", "(?i with letters beyond ASCII"}})
    {
        try
        {
            EXPECT_EQ(pcre_of_oniguruma(row.first), "an error");
        }
        catch (const FormatError& error)
        {
            EXPECT_EQ(error.what(), "pattern '" + std::string(row.first) + "' is not supported ('" + row.second +
                                        "' means another thing to each engine)");
        }
    }
}

}  // namespace plimsoll
