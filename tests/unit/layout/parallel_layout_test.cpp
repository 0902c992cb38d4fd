#include "layout/parallel_layout.hpp"

#include <gtest/gtest.h>

#include <string>

#include "support/expect_error.hpp"

namespace plimsoll
{
namespace
{

using Faults = std::vector<std::string>;
using plimsoll::testing::expect_error;

ModelSpec gpt2_large()
{
    ModelSpec model;
    model.name = "gpt2-large";
    model.vocab = 50257;
    model.hidden = 1280;
    model.layers = 36;
    model.heads = model.kv_heads = 20;
    model.head_dim = 64;
    model.ffn = 5120;
    return model;
}

ParallelLayout small_layout(std::int64_t dp, std::int64_t tp, std::int64_t pp)
{
    ParallelLayout layout;
    layout.dp = dp;
    layout.tp = tp;
    layout.pp = pp;
    layout.global_batch = dp * 8;
    return layout;
}

TEST(ValidateLayout, DegreesBelowOneAreAllNamedAtOnce)
{
    ParallelLayout layout = small_layout(0, 1, -2);
    layout.micro_batch = 0;
    layout.global_batch = 8;
    layout.zero_stage = 4;
    EXPECT_EQ(validate(layout, gpt2_large(), 1),
              (Faults{"dp must be at least 1 (it is 0)", "pp must be at least 1 (it is -2)",
                      "micro-batch must be at least 1 (it is 0)", "zero 4 is not known (known: 0 1 2 3)"}));
}

TEST(ValidateLayout, ShardsDivideDataParallelRanks)
{
    ParallelLayout layout = small_layout(8, 1, 1);
    layout.zero_stage = 3;
    layout.dp_shard = 4;
    EXPECT_TRUE(validate(layout, gpt2_large(), 8).empty());
    EXPECT_EQ(layout.shards(), 4);
    EXPECT_EQ(layout.replicas(), 2);
    EXPECT_EQ(layout_text(layout), "dp 8 (shards of 4) zero 3");
    layout.dp_shard = 3;
    EXPECT_EQ(validate(layout, gpt2_large(), 8),
              (Faults{"dp 8 cannot be cut into groups of dp-shard 3 (it does not divide). allowed dp-shard: 1 2 4 8"}));
    layout.dp_shard = 2;
    layout.zero_stage = 0;
    EXPECT_EQ(validate(layout, gpt2_large(), 8), (Faults{"dp-shard 2 has nothing to shard with zero 0. nearest: zero 1"}));
}

// A row of training.md 4A (M#954 and others): what a cut of tokens needs is said before the run, with the numbers.
TEST(TokenFaults, TensorParallelRanksShareTheTokensOfAMicroBatch)
{
    ParallelLayout layout = small_layout(1, 4, 1);
    layout.micro_batch = 3;
    EXPECT_TRUE(token_faults(layout, 5).empty());
    layout.sequence_parallel = true;
    EXPECT_TRUE(token_faults(layout, 8).empty());
    EXPECT_EQ(token_faults(layout, 6),
              (Faults{"sequence-parallel cannot cut micro-batch 3 x seq-len 6 = 18 tokens over tp 4 (it does not divide). nearest: "
                      "micro-batch 2 or 4, or without sequence-parallel"}));
    EXPECT_EQ(token_faults(layout, 7),
              (Faults{"sequence-parallel cannot cut micro-batch 3 x seq-len 7 = 21 tokens over tp 4 (it does not divide). nearest: "
                      "micro-batch 4, or without sequence-parallel"}));
    layout.tp = 1;
    EXPECT_TRUE(token_faults(layout, 7).empty()) << "without effect";
}

TEST(CutsTokens, WhereItHasAnEffectAndDivides)
{
    ParallelLayout layout = small_layout(1, 2, 1);
    EXPECT_FALSE(layout.cuts_tokens(8));
    layout.sequence_parallel = true;
    EXPECT_TRUE(layout.cuts_tokens(8));
    EXPECT_FALSE(layout.cuts_tokens(7)) << "a last batch of validation stays whole";
    EXPECT_EQ(layout_text(layout), "tp 2 (sequence parallel)");
    layout.tp = 1;
    EXPECT_FALSE(layout.cuts_tokens(8));
    EXPECT_EQ(layout_text(layout), "dp 1");
}

TEST(ValidateLayout, SoundLayoutsHaveNoFault)
{
    EXPECT_TRUE(validate(small_layout(1, 1, 1), gpt2_large(), 1).empty());
    EXPECT_TRUE(validate(small_layout(2, 4, 3), gpt2_large(), 24).empty());
    EXPECT_TRUE(validate(small_layout(1, 20, 36), gpt2_large(), 720).empty());
    EXPECT_EQ(small_layout(2, 4, 3).accumulation(), 8);
}

TEST(ValidateLayout, WorldSizeIsComparedWithTheProduct)
{
    ModelSpec model = gpt2_large();
    EXPECT_EQ(validate(small_layout(3, 2, 4), model, 32),
              (Faults{"tp*pp*dp = 2*4*3 = 24 does not equal world size 32 (8 ranks would be idle). nearest: dp=4"}));
    EXPECT_EQ(validate(small_layout(5, 2, 4), model, 32),
              (Faults{"tp*pp*dp = 2*4*5 = 40 does not equal world size 32 (8 ranks would be missing). nearest: dp=4"}));
    EXPECT_EQ(validate(small_layout(1, 2, 1), model, 3),
              (Faults{"tp*pp*dp = 2*1*1 = 2 does not equal world size 3 (1 rank would be idle). world size must be a multiple of "
                      "tp*pp = 2. nearest: 2 or 4 ranks"}));
    EXPECT_EQ(validate(small_layout(1, 4, 1), model, 3),
              (Faults{"tp*pp*dp = 4*1*1 = 4 does not equal world size 3 (1 rank would be missing). world size must be a multiple "
                      "of tp*pp = 4. nearest: 4 ranks"}));
    ParallelLayout with_cp = small_layout(1, 2, 1);
    with_cp.cp = 2;
    EXPECT_EQ(validate(with_cp, model, 8),
              (Faults{"tp*pp*cp*dp = 2*1*2*1 = 4 does not equal world size 8 (4 ranks would be idle). nearest: dp=2"}));
}

TEST(ValidateLayout, HeadsAreNotCut)
{
    EXPECT_EQ(validate(small_layout(1, 8, 1), gpt2_large(), 8),
              (Faults{"20 attention heads cannot be split over tp 8 (heads are not cut). allowed tp: 1 2 4 5 10 20",
                      "20 key-value heads cannot be shared by tp 8 (neither divides the other). allowed tp: 1 2 4 5 10 20"}));
}

TEST(ValidateLayout, KeyValueHeadsDivideOrAreDivided)
{
    ModelSpec model = gpt2_large();
    model.heads = 24;
    model.kv_heads = 6;
    model.ffn = 96;
    EXPECT_EQ(validate(small_layout(1, 4, 1), model, 4),
              (Faults{"6 key-value heads cannot be shared by tp 4 (neither divides the other). allowed tp: 1 2 3 6 12 24"}));
    EXPECT_TRUE(validate(small_layout(1, 12, 1), model, 12).empty());
    EXPECT_TRUE(validate(small_layout(1, 3, 1), model, 3).empty());
}

TEST(ValidateLayout, MlpWidthDivides)
{
    ModelSpec model = gpt2_large();
    model.ffn = 90;
    EXPECT_EQ(validate(small_layout(1, 4, 1), model, 4),
              (Faults{"mlp width 90 cannot be split over tp 4 (it does not divide). allowed tp: 1 2 5 10"}));
}

TEST(ValidateLayout, EachStageNeedsALayer)
{
    EXPECT_EQ(validate(small_layout(1, 1, 40), gpt2_large(), 40),
              (Faults{"36 layers cannot fill pp 40 stages (each stage needs a layer). allowed pp: 1 to 36"}));
}

TEST(ValidateLayout, ExpertParallelNeedsExperts)
{
    ParallelLayout layout = small_layout(2, 1, 1);
    layout.ep = 2;
    EXPECT_EQ(validate(layout, gpt2_large(), 2), (Faults{"ep 2 needs a model with experts ('gpt2-large' has none). nearest: ep=1"}));
}

TEST(ValidateLayout, BatchIsWholeMicroBatches)
{
    ParallelLayout layout = small_layout(4, 1, 1);
    layout.micro_batch = 2;
    layout.global_batch = 30;
    EXPECT_EQ(validate(layout, gpt2_large(), 4),
              (Faults{"global batch 30 is not a multiple of dp 4 x micro-batch 2 = 8 (each rank takes whole micro-batches). "
                      "nearest: 24 or 32"}));
    layout.global_batch = 5;
    EXPECT_EQ(validate(layout, gpt2_large(), 4),
              (Faults{"global batch 5 is not a multiple of dp 4 x micro-batch 2 = 8 (each rank takes whole micro-batches). "
                      "nearest: 8"}));
}

ParallelLayout scheduled(PipelineKind kind, std::int64_t pp, std::int64_t virtual_stages)
{
    ParallelLayout layout = small_layout(1, 1, pp);
    layout.schedule = kind;
    layout.virtual_stages = virtual_stages;
    return layout;
}

TEST(StageSplitText, IsReadAndWritten)
{
    for (const char* text : {"even", "auto", "7,9,9,7", "36"}) { EXPECT_EQ(stage_split_text(parse_stage_split(text)), text); }
    EXPECT_EQ(parse_stage_split("7,9").layers, (std::vector<std::int64_t>{7, 9}));
    for (const char* text : {"", "7,,9", "7,", ",7", "7 9", "-1,3", "odd", "7,9.5", "99999999999"})
    {
        expect_error<ConfigError>(
            [&] { parse_stage_split(text); },
            fmt::format("pp-split '{}' is not known (even, auto, or the layers of each stage such as 7,9,9,7)", text));
    }
}

TEST(ValidateLayout, ASplitGivesEachStageLayersAndAllOfThem)
{
    ParallelLayout layout = small_layout(1, 1, 4);
    const auto faults_of = [&](const char* text)
    {
        layout.split = parse_stage_split(text);
        return validate(layout, gpt2_large(), 4);
    };
    EXPECT_EQ(faults_of("8,10,10,8"), Faults{});
    EXPECT_EQ(faults_of("auto"), Faults{});
    EXPECT_EQ(faults_of("12,12,12"), Faults{"pp-split 12,12,12 has 3 numbers, the layout 4 stages. nearest: 9,9,9,9"});
    EXPECT_EQ(faults_of("8,10,10,10"), Faults{"pp-split 8,10,10,10 has 38 layers, the model 36. nearest: 8,10,10,8"});
    EXPECT_EQ(faults_of("20,20,1,1"), Faults{"pp-split 20,20,1,1 has 42 layers, the model 36. nearest: 9,9,9,9"});
    EXPECT_EQ(faults_of("18,0,9,9"), Faults{"pp-split 18,0,9,9 gives stage 1 no layer (each needs one). nearest: 9,9,9,9"});
    layout.schedule = PipelineKind::interleaved;
    layout.virtual_stages = 2;
    EXPECT_EQ(faults_of("9,9,9,9"), Faults{"pp-split 9,9,9,9 has 4 numbers, the layout 8 virtual stages (pp 4 x virtual-stages 2). "
                                           "nearest: 5,5,5,5,4,4,4,4"});
    EXPECT_EQ(faults_of("0,9,9,9,9,0,0,0").front(), "pp-split 0,9,9,9,9,0,0,0 gives virtual stage 0 no layer (each needs one). nearest: "
                                                    "5,5,5,5,4,4,4,4");
}

TEST(ValidateLayout, SchedulesSayHowManyChunksTheyTake)
{
    const ModelSpec model = gpt2_large();
    for (const PipelineKind kind : {PipelineKind::one_f_one_b, PipelineKind::gpipe, PipelineKind::zb_h1})
    {
        EXPECT_EQ(validate(scheduled(kind, 4, 1), model, 4), Faults{});
        EXPECT_EQ(validate(scheduled(kind, 4, 2), model, 4),
                  Faults{fmt::format("schedule {} has one chunk per stage (virtual-stages is 2). nearest: virtual-stages 1, or schedule "
                                     "interleaved", pipeline_kind_name(kind))});
    }
    EXPECT_EQ(validate(scheduled(PipelineKind::interleaved, 4, 3), model, 4), Faults{});
    EXPECT_EQ(validate(scheduled(PipelineKind::interleaved, 4, 1), model, 4),
              Faults{"schedule interleaved needs at least 2 chunks per stage (virtual-stages is 1). nearest: virtual-stages 2, or "
                     "schedule 1f1b"});
    EXPECT_EQ(validate(scheduled(PipelineKind::interleaved, 1, 2), model, 1),
              Faults{"schedule interleaved needs at least 2 stages (pp is 1). nearest: pp 2, or schedule 1f1b"});
    EXPECT_EQ(validate(scheduled(PipelineKind::zbv, 4, 2), model, 4), Faults{});
    EXPECT_EQ(validate(scheduled(PipelineKind::zbv, 4, 3), model, 4),
              Faults{"schedule zbv has 2 chunks per stage (virtual-stages is 3). nearest: virtual-stages 2"});
    EXPECT_EQ(validate(scheduled(PipelineKind::zbv, 4, 0), model, 4), Faults{"virtual-stages must be at least 1 (it is 0)"});
}

TEST(ValidateLayout, EachVirtualStageNeedsALayer)
{
    EXPECT_EQ(validate(scheduled(PipelineKind::interleaved, 8, 6), gpt2_large(), 8),
              Faults{"36 layers cannot fill 48 virtual stages (pp 8 x virtual-stages 6, each needs a layer). nearest: virtual-stages 4"});
    EXPECT_EQ(validate(scheduled(PipelineKind::zbv, 20, 2), gpt2_large(), 20),
              Faults{"36 layers cannot fill 40 virtual stages (pp 20 x virtual-stages 2, each needs a layer). nearest: pp 18"});
}

TEST(ValidateLayout, InterleavingTakesMicroBatchesInGroupsOfStages)
{
    ParallelLayout layout = scheduled(PipelineKind::interleaved, 4, 2);
    layout.dp = 2;
    layout.micro_batch = 4;
    layout.global_batch = 48;
    EXPECT_EQ(validate(layout, gpt2_large(), 8),
              Faults{"schedule interleaved takes micro-batches in groups of pp 4 (6 are accumulated: global-batch 48 / (dp 2 x "
                     "micro-batch 4)). nearest: global-batch 32 or 64"});
    layout.global_batch = 8;
    const std::string fault = schedule_faults(layout).front();
    EXPECT_EQ(fault.substr(fault.find("nearest")), "nearest: global-batch 32");
}

TEST(WithPp, AListGoesWithItsNumberOfStages)
{
    ParallelLayout layout = small_layout(1, 1, 4);
    layout.split = parse_stage_split("8,10,10,8");
    EXPECT_EQ(with_pp(layout, 4).split, layout.split);
    EXPECT_EQ(with_pp(layout, 2).split, StageSplit());
    EXPECT_EQ(with_pp(layout, 2).pp, 2);
    layout.split = parse_stage_split("auto");
    EXPECT_EQ(with_pp(layout, 2).split, layout.split);
}

TEST(ValidateLayout, AllFaultsComeTogether)
{
    ParallelLayout layout = small_layout(2, 8, 40);
    layout.global_batch = 7;
    EXPECT_EQ(validate(layout, gpt2_large(), 2).size(), 5U);
}

}  // namespace
}  // namespace plimsoll
