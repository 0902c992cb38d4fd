#include "base/units.hpp"

#include <gtest/gtest.h>

#include "support/expect_error.hpp"

using namespace plimsoll;
using plimsoll::testing::expect_error;

TEST(Units, CountsTakeDecimalSuffixes)
{
    struct Row
    {
        const char* text;
        std::int64_t value;
    };
    const Row rows[] = {{"0", 0},
                        {"1", 1},
                        {"-3", -3},
                        {"+3", 3},
                        {"500K", 500000},
                        {"500k", 500000},
                        {"1.5K", 1500},
                        {"1.5B", 1500000000},
                        {"2T", 2000000000000},
                        {"1e6", 1000000},
                        {"1.25e2", 125},
                        {"100e-2", 1},
                        {" 7 ", 7},
                        {"1.0", 1},
                        {"0.001K", 1},
                        {"9223372036854775807", 9223372036854775807LL}};
    for (const Row& row : rows) { EXPECT_EQ(parse_count(row.text), row.value) << row.text; }
}

TEST(Units, BrokenCountsAreRefused)
{
    for (const char* text :
         {"", " ", "-", "K", "1.5", "0.0001K", "12x", "1 000", "1,000", "0x10", "1e", "1e99", "nan", "--1",
          "9223372036854775808", "9223372036854775807K", "1.2.3", "99999999999999999999999999999999999999"})
    {
        expect_error<ConfigError>([&] { parse_count(text); },
                                  fmt::format("'{}' is not a whole number (a count such as 50, "
                                              "500K or 1.5B is wanted)",
                                              text));
    }
}

TEST(Units, BytesTakeBothFamilies)
{
    EXPECT_EQ(parse_bytes("80GiB"), 85899345920);
    EXPECT_EQ(parse_bytes("80 GiB"), 85899345920);
    EXPECT_EQ(parse_bytes("1.5GB"), 1500000000);
    EXPECT_EQ(parse_bytes("64MiB"), 67108864);
    EXPECT_EQ(parse_bytes("3kB"), 3000);
    EXPECT_EQ(parse_bytes("512B"), 512);
    EXPECT_EQ(parse_bytes("0B"), 0);
}

TEST(Units, BytesWithoutUnitNameTheUnits)
{
    expect_error<ConfigError>([] { parse_bytes("80"); },
                              "'80' has no unit (bytes need one). write 80GiB, 80MiB or 80GB");
    expect_error<ConfigError>([] { parse_bytes("80G"); },
                              "'80G' is ambiguous (powers of two or of ten). write 80GiB or 80GB");
    expect_error<ConfigError>([] { parse_bytes("GiB"); },
                              "'GiB' is not an amount of bytes (such as 80GiB, 512MiB or 1.5GB)");
    expect_error<ConfigError>([] { parse_bytes("-1GiB"); },
                              "'-1GiB' is not an amount of bytes (such as 80GiB, 512MiB or 1.5GB)");
    expect_error<ConfigError>([] { parse_bytes("9000000000GiB"); }, "'9000000000GiB' is too large (at most 8 EiB)");
}

TEST(Units, DurationsTakeUnitsAndClocks)
{
    EXPECT_EQ(parse_duration("45s"), 45);
    EXPECT_EQ(parse_duration("30min"), 1800);
    EXPECT_EQ(parse_duration("1.5h"), 5400);
    EXPECT_EQ(parse_duration("1h30min"), 5400);
    EXPECT_EQ(parse_duration("2d"), 172800);
    EXPECT_DOUBLE_EQ(parse_duration("200ms"), 0.2);
    EXPECT_EQ(parse_duration("1:30:00"), 5400);
    EXPECT_EQ(parse_duration("90:00"), 5400);
    expect_error<ConfigError>([] { parse_duration("30"); },
                              "'30' has no unit (durations need one). write 30s, 30min or 30h");
    for (const char* text : {"", "s", "30m", "1:2:3:4", "1:60", "1h x", "min30", "-5s"})
    {
        expect_error<ConfigError>([&] { parse_duration(text); },
                                  fmt::format("'{}' is not a duration (such as 45s, 30min, 1.5h or 1:30:00)", text));
    }
}

TEST(Units, NumbersAreFiniteAndWhole)
{
    EXPECT_EQ(parse_number("6e-4"), 6e-4);
    EXPECT_EQ(parse_number("-1"), -1);
    for (const char* text : {"", "2%", "nan", "inf", "1e999", "0.1x", "1 2"})
    {
        expect_error<ConfigError>([&] { parse_number(text); },
                                  fmt::format("'{}' is not a number (such as 0.1 or 6e-4)", text));
    }
}

TEST(Units, SpansKnowFourUnits)
{
    const auto span = [](Span::Unit unit, double amount)
    {
        Span result;
        result.unit = unit;
        result.amount = amount;
        return result;
    };
    EXPECT_EQ(parse_span("never"), span(Span::Unit::never, 0));
    EXPECT_EQ(parse_span("50"), span(Span::Unit::steps, 50));
    EXPECT_EQ(parse_span("50 steps"), span(Span::Unit::steps, 50));
    EXPECT_EQ(parse_span("2%"), span(Span::Unit::percent, 2));
    EXPECT_EQ(parse_span("0.5 %"), span(Span::Unit::percent, 0.5));
    EXPECT_EQ(parse_span("100M tokens"), span(Span::Unit::tokens, 1e8));
    EXPECT_EQ(parse_span("30min"), span(Span::Unit::seconds, 1800));
    expect_error<ConfigError>([] { parse_span("101%"); }, "'101%' is out of range (0% to 100%)");
    expect_error<ConfigError>([] { parse_span("-1"); }, "'-1' is negative (a span is at least 0)");
    for (const char* text : {"", "often", "x%", "100M bytes", "tokens", "50 50"})
    {
        expect_error<ConfigError>([&] { parse_span(text); },
                                  fmt::format("'{}' is not a span (such as 50 steps, 2%, 100M tokens, 30min or never)",
                                              text));
    }
}

TEST(Units, RelativeValuesAreSharesOrAmounts)
{
    EXPECT_DOUBLE_EQ(parse_relative("0.1x").of(6e-4), 6e-5);
    EXPECT_DOUBLE_EQ(parse_relative("6e-5").of(1.0), 6e-5);
    expect_error<ConfigError>([] { parse_relative("x"); },
                              "'x' is neither a number nor a share (such as 6e-5 or 0.1x)");
}

TEST(Units, BoolsHaveWords)
{
    EXPECT_TRUE(parse_bool("on"));
    EXPECT_FALSE(parse_bool("no"));
    expect_error<ConfigError>([] { parse_bool("maybe"); }, "'maybe' is neither true nor false");
}

TEST(Units, TextsReadBack)
{
    for (const char* text : {"never", "50", "2%", "0.1%", "100000000 tokens", "1800s", "0.25s"})
    {
        EXPECT_EQ(span_text(parse_span(text)), text);
    }
    for (const std::int64_t bytes : {0LL, 1LL, 512LL, 1024LL, 1500000000LL, 85899345920LL, 1234567LL, 80000000000LL})
    {
        EXPECT_EQ(parse_bytes(bytes_text(bytes)), bytes) << bytes_text(bytes);
    }
    EXPECT_EQ(bytes_text(85899345920), "80GiB");
    EXPECT_EQ(bytes_text(80000000000), "80GB");
    EXPECT_EQ(bytes_text(0), "0B");
    for (const double value : {6e-4, 1e-8, 0.1, 1.0, 1.0 / 3.0}) { EXPECT_EQ(parse_number(number_text(value)), value); }
}

TEST(Units, PeopleReadThreeDigits)
{
    EXPECT_EQ(format_grouped(0), "0");
    EXPECT_EQ(format_grouped(-1234), "-1,234");
    EXPECT_EQ(format_grouped(812334), "812,334");
    EXPECT_EQ(format_count(61035), "61,035");
    EXPECT_EQ(format_count(8.03e9), "8.03 B");
    EXPECT_EQ(format_memory(512), "512 B");
    EXPECT_EQ(format_memory(1.5 * 1073741824), "1.50 GiB");
    EXPECT_EQ(format_memory(112.0 * 1048576), "112 MiB");
    EXPECT_EQ(format_memory(1023.7 * 1048576), "1.00 GiB");
    EXPECT_EQ(format_storage(3.81e9), "3.81 GB");
    EXPECT_EQ(format_storage(61.2e6), "61.2 MB");
    EXPECT_EQ(format_storage(999.7e6), "1.00 GB");
    EXPECT_EQ(format_rate(214e6), "214 MB/s");
}

TEST(Units, ClocksCarry)
{
    EXPECT_EQ(format_clock(7), "0:07");
    EXPECT_EQ(format_clock(59.6), "1:00");
    EXPECT_EQ(format_clock(3672), "1:01:12");
    EXPECT_EQ(format_clock(-3), "0:00");
    EXPECT_EQ(format_clock_hours(64), "0:01:04");
    EXPECT_EQ(format_clock_hours(360000), "100:00:00");
}

TEST(Units, TransferSizesArePowersOfTwo)
{
    EXPECT_EQ(parse_transfer_size("8"), 8);
    EXPECT_EQ(parse_transfer_size("1K"), 1024);
    EXPECT_EQ(parse_transfer_size("64M"), 67108864);
    EXPECT_EQ(parse_transfer_size("2G"), 2147483648);
    EXPECT_EQ(parse_transfer_size("1.5K"), 1536);
    EXPECT_EQ(parse_transfer_size("64KiB"), 65536);
    EXPECT_EQ(parse_transfer_size("1MB"), 1000000);
    EXPECT_EQ(parse_transfer_size("0"), 0);
    for (const char* text : {"", "K", "1T", "x", "1KK", "1 2"})
    {
        expect_error<ConfigError>([&] { parse_transfer_size(text); },
                                  "'" + std::string(text) + "' is not a size (such as 8, 64K, 1M or 2G; these are powers of two)");
    }
    for (const char* text : {"0.3K", "-1", "1.5", "1e30G"})
    {
        expect_error<ConfigError>([&] { parse_transfer_size(text); },
                                  "'" + std::string(text) + "' is not a whole number of bytes from 0 to 8 EiB");
    }
}
