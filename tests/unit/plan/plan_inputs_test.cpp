#include "plan/plan_inputs.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "base/error.hpp"
#include "support/temp_dir.hpp"
#include "base/text_file.hpp"
#include "unit/plan/tiny_models.hpp"

using namespace plimsoll;

TEST(PlanInputs, AutoDividesTheWorld)
{
    RunConfig config;
    config.layout.tp = 2;
    config.layout.pp = 2;
    EXPECT_EQ(parallel_layout(config, 16).dp, 4);
    EXPECT_EQ(parallel_layout(config, 1).dp, 1);
    config.layout.dp = 3;
    EXPECT_EQ(parallel_layout(config, 16).dp, 3);
}

TEST(PlanInputs, SequenceParallelIsOffUnlessAskedFor)
{
    RunConfig config;
    EXPECT_FALSE(parallel_layout(config, 2).sequence_parallel);
    config.layout.sequence_parallel = true;
    EXPECT_TRUE(parallel_layout(config, 2).sequence_parallel);
}

TEST(PlanInputs, VirtualStagesAreWhatTheScheduleNeeds)
{
    RunConfig config;
    EXPECT_EQ(parallel_layout(config, 1).schedule, PipelineKind::one_f_one_b);
    EXPECT_EQ(parallel_layout(config, 1).virtual_stages, 1);
    config.layout.schedule = "zbv";
    EXPECT_EQ(parallel_layout(config, 1).virtual_stages, 2);
    config.layout.schedule = "interleaved";
    EXPECT_EQ(parallel_layout(config, 1).virtual_stages, 2);
    config.layout.virtual_stages = 3;
    config.layout.pp_split = "1,2,3";
    EXPECT_EQ(parallel_layout(config, 1).virtual_stages, 3);
    EXPECT_EQ(parallel_layout(config, 1).split, parse_stage_split("1,2,3"));
}

TEST(PlanInputs, ValidationTakesItsOwnBatch)
{
    RunConfig config;
    config.data.seq_len = 8;
    config.layout.micro_batch = 4;
    config.train.precision = "fp64";
    EXPECT_EQ(step_policies(config, 2, Validation::none).eval_micro_batch, 0);
    EXPECT_EQ(step_policies(config, 2, Validation::planned).eval_micro_batch, 4);
    config.eval.micro_batch = 16;
    const StepPolicies policies = step_policies(config, 2, Validation::planned);
    EXPECT_EQ(policies.eval_micro_batch, 16);
    EXPECT_EQ(policies.dtype, Dtype::f64);
    EXPECT_EQ(policies.threads, 2);
}

TEST(MemoryLimit, TheNearestSourceCounts)
{
    RunConfig::Cluster cluster;
    EXPECT_EQ(memory_limit(cluster, 100, 1).bytes, 100);
    EXPECT_EQ(memory_limit(cluster, 100, 1).source, "memory of this machine");
    EXPECT_EQ(memory_limit(cluster, 100, 4).bytes, 25);
    EXPECT_EQ(memory_limit(cluster, 100, 4).source, "memory of this machine / 4 ranks");
    EXPECT_EQ(memory_limit(cluster, 0, 4).bytes, std::numeric_limits<std::int64_t>::max());
    const plimsoll::testing::TempDir dir;
    cluster.file = dir.path() + "/small.json";
    replace_text(cluster.file, R"({"device_memory": "2GiB"})");
    EXPECT_EQ(memory_limit(cluster, 100, 4).bytes, std::int64_t{2} << 30);
    EXPECT_EQ(memory_limit(cluster, 100, 4).source, "a device of cluster 'small'");
    cluster.memory_limit = 7;
    EXPECT_EQ(memory_limit(cluster, 100, 4).bytes, 7);
    EXPECT_EQ(memory_limit(cluster, 100, 4).source, "memory-limit");
}

TEST(PlanInputs, FaultsOfALayoutAreOneMessage)
{
    const ModelSpec model = test::eight_layer_gpt2();  // 64 positions
    EXPECT_EQ(layout_faults(test::layout_of(1, 1, 1), model, 64, 1), "");
    const std::string text = layout_faults(test::layout_of(1, 3, 1), model, 65, 3);
    EXPECT_NE(text.find("8 attention heads cannot be split over tp 3"), std::string::npos) << text;
    EXPECT_NE(text.find("; data.seq-len 65 is longer than the model's 64 positions"), std::string::npos) << text;
    ParallelLayout cut = test::layout_of(1, 2, 1);
    cut.sequence_parallel = true;
    EXPECT_EQ(layout_faults(cut, model, 64, 2), "");
    EXPECT_NE(layout_faults(cut, model, 63, 2).find("sequence-parallel cannot cut micro-batch 1 x seq-len 63"), std::string::npos);
}
