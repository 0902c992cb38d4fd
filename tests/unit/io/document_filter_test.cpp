#include "io/document_filter.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "base/cli.hpp"
#include "io/document_statistics.hpp"

namespace plimsoll
{

namespace
{

template<class Value>
DropReason with_limit(Value DocumentFilterOptions::* limit, Value value, std::string_view text)
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
    const std::string text = "\xC3\xA9\xD0\x96\xE4\xB8\xAD" "a\xD9\xA3\xE3\x80\x80\xE3\x80\x82!";
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

TEST(LengthHistogram, IsExactBelow32AndWithinASixteenthAbove)
{
    for (std::int64_t length = 0; length < 100000; length += length < 4096 ? 1 : 97)
    {
        const std::int64_t begin = LengthHistogram::bin_begin(length);
        ASSERT_LE(begin, length);
        if (length < 32) { ASSERT_EQ(begin, length); }
        else { ASSERT_LT(static_cast<double>(length - begin), static_cast<double>(length) / 16) << length; }
        ASSERT_LE(begin, LengthHistogram::bin_begin(length + 1));
    }
    EXPECT_EQ(LengthHistogram::bin_begin(64), 64);
    EXPECT_EQ(LengthHistogram::bin_begin(INT64_MAX), 31ll << 58);
}

TEST(LengthHistogram, PercentilesAreThoseOfTheSortedLengths)
{
    std::vector<std::int64_t> lengths;
    LengthHistogram whole, even, odd;
    for (std::int64_t i = 0; i < 5000; ++i)
    {
        const std::int64_t length = (i * 7919) % 5003 * ((i * 31) % 17 + 1);
        lengths.push_back(length);
        whole.add(length);
        (i % 2 == 0 ? even : odd).add(length);
    }
    std::sort(lengths.begin(), lengths.end());
    odd.merge(even);
    for (const double percent : {0.0, 1.0, 10.0, 50.0, 90.0, 99.0, 100.0})
    {
        const auto rank = static_cast<std::size_t>(std::max(1.0, std::ceil(percent / 100 * 5000)));
        EXPECT_EQ(whole.percentile(percent),
                  std::max(lengths.front(), LengthHistogram::bin_begin(lengths[rank - 1])));
        EXPECT_EQ(odd.percentile(percent), whole.percentile(percent));
    }
    EXPECT_EQ(odd.smallest(), lengths.front());
    EXPECT_EQ(odd.largest(), lengths.back());
    EXPECT_EQ(odd.sum(), whole.sum());
    EXPECT_EQ(LengthHistogram().percentile(50), 0);
    EXPECT_EQ(LengthHistogram().smallest(), 0);
}

TEST(LengthHistogram, PrintsATableAndJson)
{
    DocumentStatistics statistics;
    statistics.add(3, 20);
    statistics.add(1000, 4090);
    EXPECT_EQ(statistics_table(statistics),
              "lengths       smallest          p1         p10         p50         p90         p99       largest        mean\n"
              "tokens               3           3           3           3         992         992         1,000         502\n"
              "text bytes          20          20          20          20       3,968       3,968         4,090       2,055\n");
    EXPECT_EQ(statistics_json(statistics),
              R"({"tokens":{"documents":2,"sum":1003,"smallest":3,"p1":3,"p10":3,"p50":3,"p90":992,"p99":992,)"
              R"("largest":1000,"mean":501.5},"text_bytes":{"documents":2,"sum":4110,"smallest":20,"p1":20,"p10":20,)"
              R"("p50":20,"p90":3968,"p99":3968,"largest":4090,"mean":2055.0}})");
}

}  // namespace plimsoll
