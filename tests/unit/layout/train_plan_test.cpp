#include "layout/train_plan.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"

using namespace plimsoll;

namespace
{

RunConfig config_of(std::int64_t steps)
{
    RunConfig config;
    config.layout.global_batch = 32;
    config.data.seq_len = 256;
    config.train.steps = steps;
    return config;
}

Span span_of(Span::Unit unit, double amount)
{
    Span span;
    span.unit = unit;
    span.amount = amount;
    return span;
}

std::string message_of(const RunConfig& config)
{
    try
    {
        make_train_plan(config, 1000);
    }
    catch (const ConfigError& error)
    {
        return error.what();
    }
    return "";
}

}  // namespace

TEST(TrainPlan, LengthInStepsIsTaken)
{
    const TrainPlan plan = make_train_plan(config_of(7), 1000);
    EXPECT_EQ(plan.total_steps, 7);
    EXPECT_EQ(plan.tokens_per_step, 8192);
    EXPECT_TRUE(plan.eval.never());
    EXPECT_TRUE(plan.checkpoint.never());
}

TEST(TrainPlan, TokensAndEpochsRoundDownToWholeSteps)
{
    RunConfig config = config_of(0);
    config.train.tokens = 500000;  // 61.04 steps
    EXPECT_EQ(make_train_plan(config, 1000).total_steps, 61);
    config.train.tokens = 0;
    config.train.epochs = 2;
    EXPECT_EQ(make_train_plan(config, 1000).total_steps, 62);  // 2000 / 32 = 62.5
}

TEST(TrainPlan, ALengthOfLessThanOneStepIsRefused)
{
    RunConfig config = config_of(0);
    config.train.tokens = 8191;
    EXPECT_EQ(message_of(config),
              "train.tokens 8191 is less than one step (global-batch 32 x seq-len 256 = 8192 tokens)");
    config.train.tokens = 0;
    config.train.epochs = 0.01;
    EXPECT_EQ(message_of(config), "train.epochs 0.01 is less than one step (1000 samples in an epoch, global-batch 32)");
}

TEST(TrainPlan, SpansMeanSteps)
{
    RunConfig config = config_of(200);
    config.train.schedule = "wsd";
    config.train.warmup = span_of(Span::Unit::percent, 2);
    config.train.decay = span_of(Span::Unit::tokens, 8193);
    config.eval.every = span_of(Span::Unit::steps, 50);
    config.checkpoint.every = span_of(Span::Unit::seconds, 90);
    const TrainPlan plan = make_train_plan(config, 1000);
    EXPECT_EQ(plan.warmup_steps, 4);
    EXPECT_EQ(plan.decay_steps, 2);
    EXPECT_TRUE(plan.eval.due(100, 0));
    EXPECT_FALSE(plan.eval.due(101, 1e9));
    EXPECT_TRUE(plan.checkpoint.due(1, 90));
    EXPECT_FALSE(plan.checkpoint.due(1, 89));
}

TEST(TrainPlan, DecayBelongsToWsdAlone)
{
    RunConfig config = config_of(100);
    config.train.schedule = "cosine";
    config.train.decay = span_of(Span::Unit::percent, 20);
    EXPECT_EQ(make_train_plan(config, 1000).decay_steps, 0);
}

TEST(TrainPlan, APercentageOfAShortRunStillHappens)
{
    RunConfig config = config_of(10);
    config.eval.every = span_of(Span::Unit::percent, 1);
    EXPECT_EQ(make_train_plan(config, 1000).eval.steps, 1);
}

TEST(TrainPlan, WarmupAndDecayMustFit)
{
    RunConfig config = config_of(10);
    config.train.schedule = "wsd";
    config.train.warmup = span_of(Span::Unit::steps, 6);
    config.train.decay = span_of(Span::Unit::percent, 50);
    EXPECT_EQ(message_of(config), "warmup 6 + decay 5 = 11 steps is longer than the run (10 steps)");
    config.train.warmup = span_of(Span::Unit::seconds, 60);
    EXPECT_EQ(message_of(config), "train.warmup cannot be a time (the learning rate would depend on the machine). give "
                                  "steps, a percentage or tokens");
}
