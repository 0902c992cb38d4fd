#include "layout/parallel_layout.hpp"

#include <gtest/gtest.h>

#include <string>

namespace plimsoll
{
namespace
{

using Faults = std::vector<std::string>;

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

ParallelLayout make_layout(std::int64_t dp, std::int64_t tp, std::int64_t pp)
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
    ParallelLayout layout = make_layout(0, 1, -2);
    layout.micro_batch = 0;
    layout.global_batch = 8;
    layout.zero_stage = 4;
    EXPECT_EQ(validate(layout, gpt2_large(), 1),
              (Faults{"dp must be at least 1 (it is 0)", "pp must be at least 1 (it is -2)",
                      "micro-batch must be at least 1 (it is 0)", "zero 4 is not known (known: 0 1 2 3)"}));
}

TEST(ValidateLayout, ShardsDivideDataParallelRanks)
{
    ParallelLayout layout = make_layout(8, 1, 1);
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

TEST(ValidateLayout, SoundLayoutsHaveNoFault)
{
    EXPECT_TRUE(validate(make_layout(1, 1, 1), gpt2_large(), 1).empty());
    EXPECT_TRUE(validate(make_layout(2, 4, 3), gpt2_large(), 24).empty());
    EXPECT_TRUE(validate(make_layout(1, 20, 36), gpt2_large(), 720).empty());
    EXPECT_EQ(make_layout(2, 4, 3).accumulation(), 8);
}

TEST(ValidateLayout, WorldSizeIsComparedWithTheProduct)
{
    ModelSpec model = gpt2_large();
    EXPECT_EQ(validate(make_layout(3, 2, 4), model, 32),
              (Faults{"tp*pp*dp = 2*4*3 = 24 does not equal world size 32 (8 ranks would be idle). nearest: dp=4"}));
    EXPECT_EQ(validate(make_layout(5, 2, 4), model, 32),
              (Faults{"tp*pp*dp = 2*4*5 = 40 does not equal world size 32 (8 ranks would be missing). nearest: dp=4"}));
    EXPECT_EQ(validate(make_layout(1, 2, 1), model, 3),
              (Faults{"tp*pp*dp = 2*1*1 = 2 does not equal world size 3 (1 rank would be idle). world size must be a multiple of "
                      "tp*pp = 2. nearest: 2 or 4 ranks"}));
    EXPECT_EQ(validate(make_layout(1, 4, 1), model, 3),
              (Faults{"tp*pp*dp = 4*1*1 = 4 does not equal world size 3 (1 rank would be missing). world size must be a multiple "
                      "of tp*pp = 4. nearest: 4 ranks"}));
    ParallelLayout with_cp = make_layout(1, 2, 1);
    with_cp.cp = 2;
    EXPECT_EQ(validate(with_cp, model, 8),
              (Faults{"tp*pp*cp*dp = 2*1*2*1 = 4 does not equal world size 8 (4 ranks would be idle). nearest: dp=2"}));
}

TEST(ValidateLayout, HeadsAreNotCut)
{
    EXPECT_EQ(validate(make_layout(1, 8, 1), gpt2_large(), 8),
              (Faults{"20 attention heads cannot be split over tp 8 (heads are not cut). allowed tp: 1 2 4 5 10 20",
                      "20 key-value heads cannot be shared by tp 8 (neither divides the other). allowed tp: 1 2 4 5 10 20"}));
}

TEST(ValidateLayout, KeyValueHeadsDivideOrAreDivided)
{
    ModelSpec model = gpt2_large();
    model.heads = 24;
    model.kv_heads = 6;
    model.ffn = 96;
    EXPECT_EQ(validate(make_layout(1, 4, 1), model, 4),
              (Faults{"6 key-value heads cannot be shared by tp 4 (neither divides the other). allowed tp: 1 2 3 6 12 24"}));
    EXPECT_TRUE(validate(make_layout(1, 12, 1), model, 12).empty());
    EXPECT_TRUE(validate(make_layout(1, 3, 1), model, 3).empty());
}

TEST(ValidateLayout, MlpWidthDivides)
{
    ModelSpec model = gpt2_large();
    model.ffn = 90;
    EXPECT_EQ(validate(make_layout(1, 4, 1), model, 4),
              (Faults{"mlp width 90 cannot be split over tp 4 (it does not divide). allowed tp: 1 2 5 10"}));
}

TEST(ValidateLayout, EachStageNeedsALayer)
{
    EXPECT_EQ(validate(make_layout(1, 1, 40), gpt2_large(), 40),
              (Faults{"36 layers cannot fill pp 40 stages (each stage needs a layer). allowed pp: 1 to 36"}));
}

TEST(ValidateLayout, ExpertParallelNeedsExperts)
{
    ParallelLayout layout = make_layout(2, 1, 1);
    layout.ep = 2;
    EXPECT_EQ(validate(layout, gpt2_large(), 2), (Faults{"ep 2 needs a model with experts ('gpt2-large' has none). nearest: ep=1"}));
}

TEST(ValidateLayout, BatchIsWholeMicroBatches)
{
    ParallelLayout layout = make_layout(4, 1, 1);
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

TEST(ValidateLayout, AllFaultsComeTogether)
{
    ParallelLayout layout = make_layout(2, 8, 40);
    layout.global_batch = 7;
    EXPECT_EQ(validate(layout, gpt2_large(), 2).size(), 5U);
}

}  // namespace
}  // namespace plimsoll
