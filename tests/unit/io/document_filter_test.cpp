#include "io/document_filter.hpp"

#include <gtest/gtest.h>

#include <string>

#include "base/cli.hpp"

namespace plimsoll
{

namespace
{

template<class Value>
DropReason with_limit(Value DocumentFilterOptions::*limit, Value value, std::string_view text)
{
    DocumentFilterOptions options;
    options.*limit = value;
    return DocumentFilter(options).reason_to_drop(text);
}

}  // namespace

TEST(DocumentFilter, WithoutLimitsKeepsEverything)
{
    const DocumentFilter filter{DocumentFilterOptions()};
    for (const std::string_view text : {"", "\n\n\n\n", "1 1 1", "!!!", "a\na\na"})
    {
        EXPECT_EQ(filter.reason_to_drop(text), DropReason::none);
    }
    EXPECT_EQ(filter.reason_to_drop(std::int64_t{0}), DropReason::none);
    EXPECT_FALSE(DocumentFilterOptions().any_of_text());
    EXPECT_FALSE(DocumentFilterOptions().any_of_tokens());
}

TEST(DocumentFilter, LimitsAreInclusive)
{
    using Options = DocumentFilterOptions;
    EXPECT_EQ(with_limit<std::int64_t>(&Options::min_bytes, 3, "ab"), DropReason::min_bytes);
    EXPECT_EQ(with_limit<std::int64_t>(&Options::min_bytes, 3, "abc"), DropReason::none);
    EXPECT_EQ(with_limit<std::int64_t>(&Options::max_bytes, 3, "abc"), DropReason::none);
    EXPECT_EQ(with_limit<std::int64_t>(&Options::max_bytes, 3, "ab\xC3\xA9"), DropReason::max_bytes);
    EXPECT_EQ(with_limit<std::int64_t>(&Options::max_line_bytes, 3, "abc\r\nabc\n"), DropReason::none);
    EXPECT_EQ(with_limit<std::int64_t>(&Options::max_line_bytes, 3, "a\nabcd"), DropReason::line_bytes);
    Options tokens;
    tokens.min_tokens = 2;
    tokens.max_tokens = 4;
    EXPECT_TRUE(tokens.any_of_tokens());
    const DocumentFilter filter(tokens);
    EXPECT_EQ(filter.reason_to_drop(std::int64_t{1}), DropReason::min_tokens);
    EXPECT_EQ(filter.reason_to_drop(std::int64_t{2}), DropReason::none);
    EXPECT_EQ(filter.reason_to_drop(std::int64_t{4}), DropReason::none);
    EXPECT_EQ(filter.reason_to_drop(std::int64_t{5}), DropReason::max_tokens);
}

TEST(DocumentFilter, SharesAreOfCharactersOfEveryScript)
{
    using Options = DocumentFilterOptions;
    // Four letters of two to three bytes, one Arabic digit, one ideographic space, two punctuation marks: eight.
    const std::string text = "\xC3\xA9\xD0\x96\xE4\xB8\xAD"
                             "a\xD9\xA3\xE3\x80\x80\xE3\x80\x82!";
    EXPECT_EQ(with_limit(&Options::min_alphabetic, 0.5, text), DropReason::none);
    EXPECT_EQ(with_limit(&Options::min_alphabetic, 0.51, text), DropReason::alphabetic);
    EXPECT_EQ(with_limit(&Options::max_digits, 0.125, text), DropReason::none);
    EXPECT_EQ(with_limit(&Options::max_digits, 0.12, text), DropReason::digits);
    EXPECT_EQ(with_limit(&Options::max_white_space, 0.125, text), DropReason::none);
    EXPECT_EQ(with_limit(&Options::max_white_space, 0.12, text), DropReason::white_space);
    EXPECT_EQ(with_limit(&Options::max_symbols, 0.25, text), DropReason::none);
    EXPECT_EQ(with_limit(&Options::max_symbols, 0.24, text), DropReason::symbols);
}

TEST(DocumentFilter, RepeatedLinesAreCountedWithoutBlankOnes)
{
    using Options = DocumentFilterOptions;
    const std::string text = "a\nb\r\n\n \na\nb\n";  // four lines with text, two of them repeated
    EXPECT_EQ(with_limit(&Options::max_repeated_lines, 0.5, text), DropReason::none);
    EXPECT_EQ(with_limit(&Options::max_repeated_lines, 0.49, text), DropReason::repeated_lines);
    EXPECT_EQ(with_limit(&Options::max_repeated_lines, 0.0, std::string_view("a\nb")), DropReason::none);
    EXPECT_EQ(with_limit(&Options::max_repeated_lines, 0.0, std::string_view("\n\n\n")), DropReason::none);
}

TEST(DocumentFilter, CountsAddUp)
{
    DropCounts one, two;
    one.count(DropReason::digits);
    one.count(DropReason::none);
    two.count(DropReason::digits);
    two.count(DropReason::min_bytes);
    one.add(two);
    EXPECT_EQ(one.total(), 3);
    EXPECT_EQ(one.by_reason[static_cast<std::size_t>(DropReason::digits)], 2);
    OptionSet options;
    DocumentFilterOptions filter;
    declare_document_filter(options, filter);
    for (int i = 1; i < num_drop_reasons; ++i)
    {
        // The reason is the option that decided it.
        EXPECT_NO_THROW(options.at(drop_reason_name(static_cast<DropReason>(i))));
    }
    options.parse({"--min-bytes", "20", "--max-symbols", "0.3"});
    EXPECT_EQ(filter.min_bytes, 20);
    EXPECT_EQ(filter.max_symbols, 0.3);
    EXPECT_TRUE(filter.any_of_text());
}

}  // namespace plimsoll
