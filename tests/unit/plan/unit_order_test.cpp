#include "plan/unit_order.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "base/error.hpp"
#include "layout/schedule_generators.hpp"

using namespace plimsoll;

namespace
{

/// Units 0 embedding, 1 and 2 blocks, 3 head; 100 elements of 4 bytes, 2 shards.
FlatLayout four_units()
{
    FlatLayout flat;
    flat.shards = 2;
    for (const UnitKind kind : {UnitKind::embedding, UnitKind::block, UnitKind::block, UnitKind::head})
    {
        FlatUnit unit;
        unit.kind = kind;
        unit.num_elements = 100;
        unit.shard_elements = 50;
        flat.units.push_back(unit);
    }
    return flat;
}

ParallelLayout sharded(int zero, std::int64_t bucket_bytes)
{
    ParallelLayout layout;
    layout.dp = 2;
    layout.zero_stage = zero;
    layout.bucket_bytes = bucket_bytes;
    layout.resident_bytes = 0;
    return layout;
}

std::string text_of(const std::vector<UnitAction>& actions)
{
    static const char* const names[] = {"gather", "gathered", "drop", "make", "reduce", "reduced"};
    std::string text;
    for (const UnitAction& action : actions)
    {
        text += fmt::format("{}{}{}", text.empty() ? "" : " ", names[static_cast<std::size_t>(action.step)], action.unit);
    }
    return text;
}

/// One line for each use, "before | after", and one for the end.
std::vector<std::string> play(UnitOrder& order)
{
    std::vector<std::string> lines;
    for (std::size_t use = 0; use < order.num_uses(); ++use)
    {
        const std::string before = text_of(order.before());
        lines.push_back(before + " | " + text_of(order.after()));
    }
    lines.push_back(text_of(order.finish()));
    return lines;
}

std::vector<std::string> play(const FlatLayout& flat, const ParallelLayout& layout, std::int64_t micro_batches)
{
    UnitOrder order(flat, layout, uses_of_step(flat, make_single_stage_schedule(micro_batches), 0));
    const std::vector<std::string> first = play(order);
    EXPECT_EQ(play(order), first) << "a step leaves nothing behind";
    return first;
}

using Lines = std::vector<std::string>;

}  // namespace

TEST(UnitOrder, BelowZeroTwoAUnitIsReducedOnceItsGradientsOfTheStepAreComplete)
{
    const Lines expected = {" | ", " | ", " | ", " | ", " | ", " | ", " | ",  // micro-batch 0: forward with the head, backward
                            " | ", " | ", " | ", " | reduce3", " | reduce2", " | reduce1", " | reduce0",
                            "reduced3 reduced2 reduced1 reduced0"};
    EXPECT_EQ(play(four_units(), sharded(0, 0), 2), expected);
    EXPECT_EQ(play(four_units(), sharded(1, 0), 2), expected);
}

TEST(UnitOrder, ABucketStartsWhenItIsLargeEnough)
{
    EXPECT_EQ(play(four_units(), sharded(1, 900), 1),
              (Lines{" | ", " | ", " | ", " | ", " | ", " | reduce3 reduce2 reduce1", " | ",
                     "reduce0 reduced3 reduced2 reduced1 reduced0"}));
}

TEST(UnitOrder, WithZeroTwoTwoBucketsAreAlive)
{
    EXPECT_EQ(play(four_units(), sharded(2, 0), 2),
              (Lines{" | ", " | ", " | ", "make3 | reduce3", "make2 | reduced3 reduce2", "make1 | reduced2 reduce1",
                     "make0 | reduced1 reduce0",
                     " | ", " | ", " | ", "make3 | reduced0 reduce3", "make2 | reduced3 reduce2", "make1 | reduced2 reduce1",
                     "make0 | reduced1 reduce0", "reduced0"}));
}

TEST(UnitOrder, AUnitInTheBucketIsReducedBeforeItsNextMicroBatch)
{
    EXPECT_EQ(play(four_units(), sharded(2, 1 << 20), 2),
              (Lines{" | ", " | ", " | ", "make3 | ", "make2 | ", "make1 | ", "make0 | ",
                     " | ", " | ", " | ", "reduce3 reduce2 reduce1 reduce0 reduced3 reduced2 reduced1 reduced0 make3 | ", "make2 | ",
                     "make1 | ", "make0 | ", "reduce3 reduce2 reduce1 reduce0 reduced3 reduced2 reduced1 reduced0"}));
}

TEST(UnitOrder, WithZeroThreeTheNextUnitIsGatheredWhileOneComputes)
{
    EXPECT_EQ(play(four_units(), sharded(3, 0), 1),
              (Lines{"gather0 gathered0 gather1 | drop0", "gathered1 gather2 | drop1", "gathered2 gather3 | ",
                     "gathered3 make3 | drop3 reduce3", "gather1 make2 | drop2 reduced3 reduce2",
                     "gathered1 make1 | drop1 reduced2 reduce1", "make0 | reduced1 reduce0", "reduced0"}));
}

TEST(UnitOrder, WithoutPrefetchAUnitIsGatheredWhenItIsNeeded)
{
    ParallelLayout layout = sharded(3, 0);
    layout.prefetch = Prefetch::off;
    EXPECT_EQ(play(four_units(), layout, 1).front(), "gather0 gathered0 | drop0");
}

TEST(UnitOrder, SmallUnitsStayGathered)
{
    FlatLayout flat = four_units();
    flat.units[3].num_elements = 10;
    ParallelLayout layout = sharded(3, 0);
    layout.resident_bytes = 40;
    EXPECT_EQ(play(flat, layout, 1)[2], "gathered2 | ");
    EXPECT_EQ(play(flat, layout, 1)[3], "make3 | reduce3");
}

TEST(UnitOrder, ATiedEmbeddingIsCompleteAfterItsSecondUse)
{
    FlatLayout flat = four_units();
    flat.units[0].kind = UnitKind::tied_embedding;
    const Lines lines = play(flat, sharded(2, 0), 1);
    EXPECT_EQ(lines[3], "make0 make3 | reduce3");
    EXPECT_EQ(lines[6], " | reduced1 reduce0");
    EXPECT_EQ(play(flat, sharded(3, 0), 1)[3], "gathered0 gathered3 make0 make3 | drop0 drop3 reduce3");
}

TEST(UnitOrder, OfABackwardInHalvesOneReadsAndTheOtherAdds)
{
    Lines lines;
    for (const UnitUse& use : uses_of_step(four_units(), make_zb_h1_schedule(2, 1), 0))
    {
        EXPECT_EQ(use.gradients, use.completes);
        for (const std::int64_t unit : use.parameters) { lines.push_back(fmt::format("reads {}", unit)); }
        for (const std::int64_t unit : use.gradients) { lines.push_back(fmt::format("adds {}", unit)); }
    }
    EXPECT_EQ(lines, (Lines{"reads 0", "reads 1", "reads 2", "reads 2", "reads 1", "adds 2", "adds 1", "adds 0"}));
}

TEST(UnitOrder, ValidationReadsEachUnitOnce)
{
    const FlatLayout flat = four_units();
    UnitOrder order(flat, sharded(3, 0), uses_of_validation(flat, sharded(3, 0), 0));
    EXPECT_EQ(play(order), (Lines{"gather0 gathered0 gather1 | drop0", "gathered1 gather2 | drop1", "gathered2 gather3 | drop2",
                                  "gathered3 | drop3", ""}));
}

TEST(UnitOrder, AChunkUsesItsOwnBlocks)
{
    // Two stages of two chunks, dealt in turn: stage 0 has the embedding and chunk 0, then chunk 1; no head.
    FlatLayout flat = four_units();
    flat.units.pop_back();
    flat.units[2].chunk = 1;
    Lines lines;
    for (const UnitUse& use : uses_of_step(flat, make_interleaved_schedule(2, 2, 2), 0))
    {
        for (const std::int64_t unit : use.parameters) { lines.push_back(fmt::format("reads {}", unit)); }
        for (const std::int64_t unit : use.completes) { lines.push_back(fmt::format("adds {}", unit)); }
    }
    // F0a F1a F0b F1b, then backward of the second chunk, of the first.
    const Lines forward = {"reads 0", "reads 1", "reads 0", "reads 1", "reads 2", "reads 2"};
    const Lines backward = {"reads 2", "adds 2", "reads 2", "adds 2", "reads 1", "adds 1", "adds 0", "reads 1", "adds 1", "adds 0"};
    Lines all = forward;
    all.insert(all.end(), backward.begin(), backward.end());
    EXPECT_EQ(lines, all);
}

TEST(UnitOrder, InAVATiedEmbeddingHasTwoUsesOnOneStage)
{
    FlatLayout flat = four_units();
    flat.units[0].kind = UnitKind::tied_embedding;
    flat.units[2].chunk = 1;
    std::int64_t read = 0, added = 0, completed = 0;
    const auto has = [](const std::vector<std::int64_t>& units) { return std::count(units.begin(), units.end(), 0); };
    for (const UnitUse& use : uses_of_step(flat, make_zbv_schedule(2, 3), 0))
    {
        read += has(use.parameters);
        added += has(use.gradients);
        completed += has(use.completes);
        if (!use.parameters.empty() && use.parameters.back() == 3) { EXPECT_EQ(use.completes, std::vector<std::int64_t>{3}); }
    }
    // Of each of three micro-batches the look-up and the head; the look-up's gradient comes last.
    EXPECT_EQ(read, 6);
    EXPECT_EQ(added, 6);
    EXPECT_EQ(completed, 3);
}

TEST(UnitOrder, ValidationPassesTheChunksInTurn)
{
    FlatLayout flat = four_units();
    flat.units[2].chunk = 1;
    ParallelLayout layout = sharded(3, 0);
    layout.pp = 2;
    layout.schedule = PipelineKind::zbv;
    layout.virtual_stages = 2;
    std::vector<std::vector<std::int64_t>> read;
    for (const UnitUse& use : uses_of_validation(flat, layout, 0)) { read.push_back(use.parameters); }
    EXPECT_EQ(read, (std::vector<std::vector<std::int64_t>>{{0}, {1}, {2}, {3}}));
}

TEST(UnitOrder, AStageInTheMiddleHasBlocksOnly)
{
    FlatLayout flat = four_units();
    flat.units.pop_back();
    flat.units.erase(flat.units.begin());
    const std::vector<UnitUse> uses = uses_of_step(flat, make_1f1b_schedule(3, 2), 1);
    EXPECT_EQ(uses.size(), 2U * 2 * 2);
    EXPECT_EQ(uses[0].parameters, std::vector<std::int64_t>{0});
    EXPECT_TRUE(uses[0].gradients.empty());
}
