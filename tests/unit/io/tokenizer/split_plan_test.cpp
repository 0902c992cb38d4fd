#include "io/tokenizer/split_plan.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

namespace plimsoll
{

namespace
{

std::vector<std::string> split_plan_pieces(const char* behavior, std::string_view text)
{
    const nlohmann::json split = {{"type", "Split"},
                                  {"pattern", {{"String", " "}}},
                                  {"behavior", behavior},
                                  {"invert", false}};
    const nlohmann::json bytes = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    const SplitPlan plan = compile_split_plan({{"type", "Sequence"}, {"pretokenizers", {split, bytes}}});
    StageSplitter splitter(plan.stages);
    const std::vector<std::string_view>& pieces = splitter.split(text);
    return {pieces.begin(), pieces.end()};
}

using Pieces = std::vector<std::string>;

}  // namespace

TEST(SplitPlan, MergesMatchesWithTheirNeighbours)
{
    EXPECT_EQ(split_plan_pieces("MergedWithNext", "a b  c "), (Pieces{"a", " b", " ", " c", " "}));
    EXPECT_EQ(split_plan_pieces("MergedWithPrevious", " a b  c"), (Pieces{" ", "a ", "b ", " ", "c"}));
    EXPECT_EQ(split_plan_pieces("Contiguous", "a  b"), (Pieces{"a", "  ", "b"}));
    EXPECT_EQ(split_plan_pieces("Removed", "a  b "), (Pieces{"a", "b"}));
}

}  // namespace plimsoll
