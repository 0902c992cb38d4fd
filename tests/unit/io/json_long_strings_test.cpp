#include "io/json_long_strings.hpp"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "io/text_input_json.hpp"

using plimsoll::json_string_part;
using plimsoll::TextFieldParser;

namespace
{

constexpr std::int64_t json_padding = 64;

/// What a parser says of a line: the text, or why it is bad.
std::string field_text(const std::string& line, std::size_t long_string)
{
    std::string padded = line;
    padded.reserve(padded.size() + json_padding);
    TextFieldParser parser("text", long_string);
    std::string_view text;
    const std::string reason = parser.parse(padded.data(), static_cast<std::int64_t>(padded.size()), text);
    return reason.empty() ? std::string(text) : "bad: " + reason;
}

}  // namespace

TEST(JsonLongStrings, PartsEndBetweenCharacters)
{
    EXPECT_EQ(json_string_part("abcdefghijklmno", 12), 12U);
    EXPECT_EQ(json_string_part("abc", 12), 3U);
    EXPECT_EQ(json_string_part(R"(abcdefghijk\n)", 12), 11U);
    EXPECT_EQ(json_string_part(R"(abcdefghij\\n)", 12), 12U);
    EXPECT_EQ(json_string_part(R"(abcdefgh\u4e2dx)", 12), 8U);
    EXPECT_EQ(json_string_part(R"(ab\ud83d\ude00x)", 12), 2U) << "a pair stays together";
    EXPECT_EQ(json_string_part(R"(\ud83d\ude00xy)", 12), 12U);
    EXPECT_EQ(json_string_part("abcdefghij\xe4\xb8\xad", 12), 10U);
    EXPECT_EQ(json_string_part("abcdefghi\xe4\xb8\xad", 12), 12U);
}

TEST(JsonLongStrings, TheTextIsTheSameWhateverIsLong)
{
    const std::string smile = R"(\ud83d\ude00)";
    std::string mixed;
    for (int i = 0; i < 30; ++i)
    {
        mixed += R"(a\"b\\)" + smile + R"(\u4e2d\n\u0000)" + std::string(static_cast<std::size_t>(i), 'x') +
                 "\xf0\x9f\x98\x80\xc3\xa9";
    }
    const std::vector<std::string> lines = {
        R"({"text": ")" + mixed + R"("})",
        R"({"id": ")" + mixed + R"(", "text": "short", "more": [")" + mixed + R"("]})",
        R"({"text": "short", "text": ")" + mixed + R"(", "tail": ")" + mixed + mixed + R"("})",
        R"({"text": ")" + mixed + R"(", "text": "                     "})",
        R"({")" + mixed + R"(": 1, "text": ")" + mixed + R"(x\\"})",
        R"({"text": ")" + std::string(100, ' ') + R"(", "a": ")" + std::string(101, ' ') + R"("})",
        R"({"text": {"inner": ")" + mixed + R"("}})",
        R"({"text": ")" + mixed,
        R"({"text": ")" + mixed + R"(\"})",
        R"({"text": ")" + mixed + R"(", })",
        R"({"text": "x", "bad": ")" + mixed + R"(\q"})",
        R"({"text": ")" + mixed + "\x01" + R"("})",
        R"({"text": ")" + mixed + R"("} x)",
    };
    for (const std::string& line : lines)
    {
        const std::string whole = field_text(line, std::size_t{1} << 20);
        for (const std::size_t limit : {12, 13, 14, 15, 16, 17, 40, 99, 100, 101, 1000})
        {
            EXPECT_EQ(field_text(line, limit), whole) << limit << ": " << line.substr(0, 60);
        }
    }
}
