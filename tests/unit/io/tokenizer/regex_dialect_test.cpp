#include "io/tokenizer/regex_dialect.hpp"

#include <gtest/gtest.h>

namespace plimsoll
{

TEST(RegexDialect, PassesWhatBothEnginesReadAlike)
{
    for (const char* pattern : {R"('s|'t| ?\p{L}+| ?\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s+(?!\S)|\s+)",
                                R"((?i:'re|'ve)|[\p{Lu}\p{M}]?\p{Ll}*)", R"(^\d+$|\A.|(?<=\n)[^\n]{3}|(?<!a)(?>b)\z)",
                                R"([]a]\{2}+|a{,|{|a{2,}?|\x{41}{2,3})", R"([^]&]&&(a|b))", R"([\[\]]\\w)", ""})
    {
        EXPECT_EQ(foreign_construct(pattern), "") << pattern;
    }
}

TEST(RegexDialect, NamesWhatTheyReadDifferently)
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
                                                                    {"(?m)a.b", "(?m"},
                                                                    {"(?s)a.b", "(?s"},
                                                                    {"(?<name>a)", "(?<"},
                                                                    {"(*UCP)a", "(*"},
                                                                    {"(?i:STRASSE)", "(?i with ss"},
                                                                    {"(?i)\u00DF", "(?i with letters beyond ASCII"}})
    {
        EXPECT_EQ(foreign_construct(row.first), row.second) << row.first;
    }
}

}  // namespace plimsoll
