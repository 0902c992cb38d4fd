#include "plan/layout_search.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "unit/plan/tiny_models.hpp"

using namespace plimsoll;
using namespace plimsoll::test;

namespace
{

MemoryPlan plan_of(const ParallelLayout& layout)
{
    StepPolicies policies;
    policies.seq_len = 64;
    return plan_memory(eight_layer_gpt2(), layout, policies);
}

}  // namespace

TEST(LayoutSearch, TriesEveryProductAndSmallerMicroBatches)
{
    // 4 ranks: tp, pp, dp of 1 1 4, 1 2 2, 1 4 1, 2 1 2, 2 2 1, 4 1 1; micro-batches 1 2 4; ZeRO 0 to 3 where dp > 1 (3 of 6); with
    // and without sequence parallel where tp > 1 (2 1 2 in four ZeRO stages, 2 2 1, 4 1 1).
    const LayoutSearch search = search_layouts(plan_of(layout_of(1, 1, 4, 0, 4, 4)), limit_of(std::int64_t{1} << 40));
    EXPECT_EQ(search.tried, (6 + 3 * 3 + 4 + 1 + 1) * 3);
    EXPECT_EQ(search.fitting.size(), static_cast<std::size_t>(search.tried));
}

TEST(LayoutSearch, AListOfLayersIsGivenUpWithItsStages)
{
    ParallelLayout layout = layout_of(1, 1, 4, 0, 2, 4);
    layout.split = parse_stage_split("1,3,3,1");
    int other_pp = 0;
    for (const LayoutChoice& choice : search_layouts(plan_of(layout), limit_of(std::int64_t{1} << 40)).fitting)
    {
        const bool same = choice.layout.pp == 4;
        EXPECT_EQ(choice.layout.split.kind, same ? SplitKind::listed : SplitKind::even);
        EXPECT_EQ(choice.options.find("--pp-split even") != std::string::npos, !same) << choice.options;
        other_pp += same ? 0 : 1;
    }
    EXPECT_GT(other_pp, 0);
}

TEST(LayoutSearch, SequenceParallelIsAChangeWhereTensorParallelRanksShareTokens)
{
    const ParallelLayout layout = layout_of(1, 4, 1, 0, 1, 4);
    const MemoryPlan plan = plan_of(layout);
    const auto found = [](const LayoutSearch& search)
    {
        const auto same = [](const LayoutChoice& choice) { return choice.options == "--sequence-parallel"; };
        const auto at = std::find_if(search.fitting.begin(), search.fitting.end(), same);
        return at == search.fitting.end() ? std::int64_t{-1} : at->peak_bytes;
    };
    const std::int64_t peak = found(search_layouts(plan, limit_of(plan.peak_bytes() - 1)));
    EXPECT_GT(peak, 0);
    EXPECT_LT(peak, plan.peak_bytes());
    EXPECT_NE(refusal_text(plan, limit_of(plan.peak_bytes() - 1)).find("--sequence-parallel ("), std::string::npos);
    StepPolicies odd = plan.policies;
    odd.seq_len = 63;
    EXPECT_EQ(found(search_layouts(plan_memory(plan.model, layout, odd), limit_of(std::int64_t{1} << 40))), -1);
}

TEST(LayoutSearch, LeavesOutWhatTheModelForbids)
{
    // 3 ranks: 8 heads cannot be cut into 3, 8 layers fill 3 stages.
    for (const LayoutChoice& choice : search_layouts(plan_of(layout_of(3, 1, 1, 0, 1, 4)), limit_of(std::int64_t{1} << 40)).fitting)
    {
        EXPECT_EQ(choice.layout.tp, 1);
    }
}

TEST(LayoutSearch, FewestChangesFirstThenLeastCommunication)
{
    const MemoryPlan plan = plan_of(layout_of(8, 1, 1, 0, 4, 2));
    const LayoutSearch search = search_layouts(plan, limit_of(std::int64_t{1} << 40));
    ASSERT_FALSE(search.fitting.empty());
    EXPECT_EQ(search.fitting.front().changes, 0);
    for (std::size_t i = 1; i < search.fitting.size(); ++i)
    {
        const LayoutChoice& before = search.fitting[i - 1];
        const LayoutChoice& after = search.fitting[i];
        EXPECT_LE(before.changes, after.changes);
        if (before.changes == after.changes) { EXPECT_LE(before.layout.tp * before.layout.pp, after.layout.tp * after.layout.pp); }
    }
}

TEST(LayoutSearch, WhatFitsIsBelowTheLimitAndTheRestIsNot)
{
    const MemoryPlan plan = plan_of(layout_of(8, 1, 1, 0, 4, 2));
    const MemoryLimit limit = limit_of(plan.peak_bytes() / 2);
    const LayoutSearch search = search_layouts(plan, limit);
    ASSERT_FALSE(search.fitting.empty());
    EXPECT_LT(static_cast<std::int64_t>(search.fitting.size()), search.tried);
    for (const LayoutChoice& choice : search.fitting)
    {
        EXPECT_LE(choice.peak_bytes, limit.bytes);
        EXPECT_EQ(plan_of(choice.layout).peak_bytes(), choice.peak_bytes);
        EXPECT_EQ(choice.layout.world(), 8);
    }
}

TEST(RefusalText, NamesThreeCategoriesAndWhatFits)
{
    const MemoryPlan plan = plan_of(layout_of(2, 1, 1, 0, 4, 4));
    const std::string text = refusal_text(plan, limit_of(plan.peak_bytes() - 1));
    EXPECT_EQ(text.find("plan needs "), 0U) << text;
    EXPECT_NE(text.find(" MiB per rank (limit "), std::string::npos) << text;
    EXPECT_NE(text.find(", memory-limit; activations "), std::string::npos) << text;
    EXPECT_NE(text.find("). fits: --zero 1 ("), std::string::npos) << text;
    EXPECT_NE(text.find("--micro-batch 2 ("), std::string::npos) << text;
}

TEST(RefusalText, NamesTheStage)
{
    const MemoryPlan plan = plan_of(layout_of(1, 1, 4, 0, 4, 4));
    EXPECT_NE(refusal_text(plan, limit_of(plan.peak_bytes() - 1)).find(" MiB on stage 0 (limit "), std::string::npos);
}

TEST(RefusalText, SaysWhenNothingFits)
{
    const std::string text = refusal_text(plan_of(layout_of(2, 1, 1, 0, 2, 2)), limit_of(1024));
    EXPECT_NE(text.find("no layout of 2 ranks fits (14 tried; --"), std::string::npos) << text;
    EXPECT_NE(text.find("). use more ranks or a smaller seq-len"), std::string::npos) << text;
    const std::string alone = refusal_text(plan_of(layout_of(1, 1, 1)), limit_of(1024));
    EXPECT_NE(alone.find("no layout of 1 rank fits (1 tried; this layout needs least"), std::string::npos) << alone;
}
