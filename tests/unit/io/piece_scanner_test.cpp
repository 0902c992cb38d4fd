/// The scanners against PCRE2 on the patterns' own texts, and the windows against the scanner.

#include "io/tokenizer/piece_scanner.hpp"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "base/error.hpp"
#include "io/tokenizer/piece_window.hpp"
#include "io/tokenizer/regex_split.hpp"

namespace plimsoll
{

namespace
{

struct ScannerRow
{
    const char* rules;
    const char* pattern;
};

// As tiktoken and the models' files have them (docs/tokenizers.md).
const ScannerRow scanner_rows[] = {
    {"gpt2", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {"cl100k",
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)"},
    {"llama3",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"qwen2",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"qwen3.5",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"o200k",
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"tekken",
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    // Class intersections are no PCRE2; a look-ahead says the same.
    {"kimi",
     R"(\p{Han}+|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])*(?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?(?:(?!\p{Han})[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])+(?:(?!\p{Han})[\p{Ll}\p{Lm}\p{Lo}\p{M}])*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"megatron-v1", R"([^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"},
};

// Nothing that came after Unicode 14, which older PCRE2 know, nor U+180E, which it takes for a space.
const char* const scanner_atoms[] = {"'s",
                                     "'S",
                                     "'\u017F",
                                     "'ll",
                                     "'LL",
                                     "'re",
                                     "'ve",
                                     "'d",
                                     "'",
                                     "''",
                                     "\u2019",
                                     " ",
                                     "  ",
                                     "   ",
                                     "\t",
                                     "\n",
                                     "\n\n",
                                     "\r\n",
                                     "\r",
                                     "\v",
                                     "\u0085",
                                     "\u00A0",
                                     "\u3000",
                                     "\u2028",
                                     "\u200B",
                                     "\u200D",
                                     "\x01",
                                     "\x1C",
                                     "\x7F",
                                     "1",
                                     "12",
                                     "1234",
                                     "\u00BD",
                                     "\u2167",
                                     "\u0663",
                                     "\u3007",
                                     "a",
                                     "the",
                                     "The",
                                     "THE",
                                     "fooBar",
                                     "FOOBar",
                                     "Z",
                                     "\u00E9",
                                     "\u0301",
                                     "\u00DF",
                                     "\u01C4",
                                     "\u01C5",
                                     "\u02B0",
                                     "\u00AA",
                                     "\u4E2D",
                                     "\u3042\u30A2",
                                     "\u3005",
                                     "\u2E80",
                                     "\uAC01",
                                     "\u0905",
                                     "\u093F",
                                     "\u0E01",
                                     "\u0E33",
                                     "\u0416",
                                     "\u043B\u0438\u0441\u0430",
                                     "\u0627",
                                     "\u0651",
                                     "\U0001F600",
                                     "\U00020000",
                                     "!",
                                     "?",
                                     "...",
                                     "/",
                                     "//",
                                     "\\",
                                     "_",
                                     "-",
                                     "\u2014",
                                     "$",
                                     "^",
                                     "(",
                                     ")",
                                     ".",
                                     ",",
                                     ":",
                                     "\"",
                                     "#",
                                     "\uE000",
                                     "\U0010FFFF"};

std::string scanner_text(std::mt19937_64& random, std::size_t num_atoms)
{
    std::string text;
    const std::size_t num_known = std::size(scanner_atoms);
    // Often only a few kinds, so that each follows each.
    const std::size_t kinds = random() % 3 == 0 ? num_known : 2 + random() % 6;
    std::vector<const char*> few;
    for (std::size_t i = 0; i < kinds; ++i) { few.push_back(scanner_atoms[random() % num_known]); }
    for (std::size_t i = 0; i < num_atoms; ++i)
    {
        const char* atom = few[random() % few.size()];
        for (std::size_t times = random() % 8 == 0 ? random() % 30 : 1; times > 0; --times) { text += atom; }
    }
    return text;
}

std::vector<std::size_t> scanned_ends(const PieceScanner& scanner, const std::string& text)
{
    std::vector<std::size_t> ends;
    const char* const end = text.data() + text.size();
    for (const char* at = text.data(); at < end;)
    {
        at = scanner.next(at, end);
        ends.push_back(static_cast<std::size_t>(at - text.data()));
    }
    return ends;
}

std::vector<std::size_t> matched_ends(RegexMatcher& matcher, const std::string& text)
{
    std::vector<RegexMatcher::Span> spans;
    matcher.split(text, spans);
    std::vector<std::size_t> ends;
    for (const RegexMatcher::Span& span : spans) { ends.push_back(span.end); }
    return ends;
}

}  // namespace

TEST(PieceScanner, CutsWherePcre2Does)
{
    for (const ScannerRow& row : scanner_rows)
    {
        ASSERT_NE(find_split_rules(row.rules), nullptr) << row.rules;
        const PieceScanner scanner(*find_split_rules(row.rules));
        const RegexPattern pattern(row.pattern, false);
        RegexMatcher matcher(pattern);
        std::mt19937_64 random(7);
        for (int i = 0; i < 800; ++i)
        {
            const std::string text = scanner_text(random, 1 + random() % 20);
            ASSERT_EQ(scanned_ends(scanner, text), matched_ends(matcher, text))
                << row.rules << ": " << ::testing::PrintToString(text);
        }
    }
}

TEST(PieceWindow, BeginsPiecesWhereTheScannerDoes)
{
    std::int64_t num_sure = 0;
    for (const ScannerRow& row : scanner_rows)
    {
        const SplitRules& rules = *find_split_rules(row.rules);
        const PieceScanner scanner(rules);
        const PieceWindow window(rules);
        const PieceWindow plain(rules, false);
        std::mt19937_64 random(11);
        for (int i = 0; i < 500 && PieceWindow::is_available(); ++i)
        {
            std::string text = scanner_text(random, 40);
            while (text.size() < PieceWindow::bytes + PieceWindow::slack) { text += scanner_text(random, 20); }
            std::uint64_t wanted = 0;
            for (const std::size_t end : scanned_ends(scanner, text))
            {
                wanted |= end < 64 ? std::uint64_t{1} << end : 0;
            }
            const std::uint64_t starts = window.find(text.data());
            ASSERT_EQ(starts, plain.find(text.data())) << row.rules << ": " << ::testing::PrintToString(text);
            if (starts == 0) { continue; }
            ++num_sure;
            std::uint64_t known = starts;  // all bits up to the highest
            for (int shift = 1; shift < 64; shift *= 2) { known |= known >> shift; }
            ASSERT_EQ(starts, wanted & known) << row.rules << ": " << ::testing::PrintToString(text);
        }
    }
    if (PieceWindow::is_available()) { EXPECT_GT(num_sure, 1000) << "most windows must be answered"; }
}

TEST(PieceScanner, TrapsOfThePatterns)
{
    const auto pieces = [](const char* rules, const std::string& text)
    {
        std::string joined;
        std::size_t begin = 0;
        for (const std::size_t end : scanned_ends(PieceScanner(*find_split_rules(rules)), text))
        {
            joined += (begin == 0 ? "" : "|") + text.substr(begin, end - begin);
            begin = end;
        }
        return joined;
    };
    EXPECT_EQ(pieces("llama3", "a   b"), "a|  | b");
    EXPECT_EQ(pieces("llama3", "abc  \n  "), "abc|  \n|  ");
    EXPECT_EQ(pieces("gpt2", "abc  \n  "), "abc|  \n  ");
    EXPECT_EQ(pieces("gpt2", "a\n\n\nb"), "a|\n\n|\n|b");
    EXPECT_EQ(pieces("llama3", "a\n\n\nb"), "a|\n\n\n|b");
    EXPECT_EQ(pieces("cl100k", "abc\n  "), "abc|\n  ") << "blank to the end is one piece";
    EXPECT_EQ(pieces("llama3", "12345"), "123|45");
    EXPECT_EQ(pieces("qwen2", "123"), "1|2|3");
    EXPECT_EQ(pieces("llama3", "it'\u017Ft"), "it|'\u017F|t") << "the long s is an s in any case";
    EXPECT_EQ(pieces("gpt2", "IT'S"), "IT|'|S") << "gpt2 knows lower case only";
    EXPECT_EQ(pieces("llama3", "b\u180E\u180Ec"), "b|\u180E\u180E|c") << "U+180E is no space";
    EXPECT_EQ(pieces("o200k", "FOOBar don't'll"), "FOOBar| don't|'ll");
    EXPECT_EQ(pieces("o200k", "\u3042A\u3042b"), "\u3042A\u3042b");
    EXPECT_EQ(pieces("o200k", "\u3042A"), "\u3042|A");
    EXPECT_EQ(pieces("llama3", "x\uA7CBy"), "x\uA7CBy") << "a letter since Unicode 16";
}

TEST(DeepseekScanner, SplitsThreeTimes)
{
    const std::string text = "ab\u4E2D\u6587c123456 .foo!!bar\x01\x02 x\n";
    DeepseekScanner scanner;
    scanner.start();
    std::vector<std::string> pieces;
    for (const char* at = text.data(); at < text.data() + text.size();)
    {
        const char* stop = scanner.next(at, text.data() + text.size());
        pieces.emplace_back(at, stop);
        at = stop;
    }
    EXPECT_EQ(pieces, (std::vector<std::string>{"ab", "\u4E2D\u6587", "c", "123", "456", " .", "foo", "!!", "bar",
                                                "\x01\x02", " x", "\n"}));
}

TEST(RegexSplit, SaysWhatIsWrongWithAPattern)
{
    EXPECT_THROW(RegexPattern("(", false), FormatError);
    const RegexPattern nested("(a+)+[bc]", false);
    RegexMatcher matcher(nested);
    std::vector<RegexMatcher::Span> spans;
    EXPECT_THROW(matcher.split(std::string(50, 'a'), spans), FormatError) << "ends by the match limit";
}

}  // namespace plimsoll
