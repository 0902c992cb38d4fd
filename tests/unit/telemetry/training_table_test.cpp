#include "telemetry/training_table.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <regex>

#include "support/memory_stream.hpp"

using namespace plimsoll;
using plimsoll::testing::MemoryStream;

namespace
{

TrainingRow row_at(std::int64_t step)
{
    TrainingRow row;
    row.step = step;
    row.loss = 3.4127;
    row.grad_norm = 0.871;
    row.lr = 5.9e-4;
    row.tokens_per_second = 4012;
    row.peak_bytes = 117021082;
    row.seconds_left = 64;
    return row;
}

}  // namespace

TEST(TrainingTable, ColumnsLineUp)
{
    EXPECT_EQ(TrainingTable::header(), "    step      loss      grad        lr       tok/s   peak MiB        left");
    EXPECT_EQ(TrainingTable::format(row_at(30)),
              "      30    3.4127     0.871   5.9e-04       4,012      111.6     0:01:04");
    TrainingRow extreme = row_at(12345678);
    extreme.loss = std::nan("");
    extreme.grad_norm = 1.5e12;
    extreme.tokens_per_second = 12345678;
    extreme.seconds_left = -1;
    EXPECT_EQ(TrainingTable::format(extreme),
              "12345678       nan  1.50e+12   5.9e-04  12,345,678      111.6           -");
}

TEST(TrainingTable, ValidationStandsBelowTheLoss)
{
    ValidationRow row;
    row.loss = 3.0021;
    row.bits_per_byte = 1.93;
    EXPECT_EQ(TrainingTable::format(row), "          val-loss 3.0021   ppl 20.13   1.93 bits/byte");
    row.bits_per_byte = 0;
    EXPECT_EQ(TrainingTable::format(row), "          val-loss 3.0021   ppl 20.13");
}

TEST(TrainingTable, TheHeaderComesAgainEvery50Rows)
{
    MemoryStream out;
    TrainingTable table(out.stream(), StreamKind::terminal);
    for (int step = 0; step < 101; ++step) { table.row(row_at(step)); }
    const std::string text = out.text();
    std::vector<std::size_t> headers;
    for (std::size_t at = text.find("tok/s"); at != std::string::npos; at = text.find("tok/s", at + 1))
    {
        headers.push_back(
            static_cast<std::size_t>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n')));
    }
    EXPECT_EQ(headers, (std::vector<std::size_t>{0, 51, 102}));
}

TEST(TrainingTable, ALogHasTheTimeOfDayAndNoControlCharacters)
{
    MemoryStream out;
    TrainingTable table(out.stream(), StreamKind::log);
    table.row(row_at(1));
    table.validation(ValidationRow());
    const std::string text = out.text();
    EXPECT_TRUE(
        std::regex_search(text, std::regex("^\\d\\d:\\d\\d:\\d\\d     step .*\n\\d\\d:\\d\\d:\\d\\d        1 ")))
        << text;
    EXPECT_EQ(text.find_first_of("\r\x1b"), std::string::npos);
}
