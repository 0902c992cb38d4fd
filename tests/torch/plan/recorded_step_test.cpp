// What the trainer does, event by event, against what the plan said it would do, in every layout up to eight ranks.

#include "torch/plan/recorded_step.hpp"

using namespace plimsoll;
using namespace plimsoll::nn;
using namespace plimsoll::test;

namespace
{

ModelSpec gpt2()
{
    return parse_model_spec(R"({"model_type":"gpt2","vocab_size":37,"n_embd":32,"n_layer":8,"n_head":8,"n_positions":64,
        "layer_norm_epsilon":1e-5,"activation_function":"gelu_new"})", "test");
}

ModelSpec llama(std::int64_t kv_heads)
{
    return parse_model_spec(fmt::format(R"({{"model_type":"llama","vocab_size":37,"hidden_size":32,"intermediate_size":48,
        "num_hidden_layers":8,"num_attention_heads":8,"num_key_value_heads":{},"max_position_embeddings":64,"rms_norm_eps":1e-6,
        "rope_theta":10000.0,"hidden_act":"silu","tie_word_embeddings":false}})", kv_heads), "test");
}

/// Head norms, QKV biases, a tied head and shared KV heads: everything that the others lack.
ModelSpec qwen3()
{
    return parse_model_spec(R"({"model_type":"qwen3","vocab_size":37,"hidden_size":32,"intermediate_size":48,
        "num_hidden_layers":8,"num_attention_heads":8,"num_key_value_heads":4,"head_dim":4,"max_position_embeddings":64,
        "rms_norm_eps":1e-6,"rope_theta":10000.0,"hidden_act":"silu","tie_word_embeddings":true,"attention_bias":true})", "test");
}

/// All dp tp pp of `world` ranks, accumulation 1 and 3; ZeRO 1 where dp divides something, else 0.
void check_world(const ModelSpec& model, std::int64_t world)
{
    for (std::int64_t tp = 1; tp <= world; tp *= 2)
    {
        for (std::int64_t pp = 1; tp * pp <= world; pp *= 2)
        {
            for (const std::int64_t accumulation : {1, 3})
            {
                StepInputs inputs;
                inputs.model = model;
                inputs.layout.dp = world / tp / pp;
                inputs.layout.tp = tp;
                inputs.layout.pp = pp;
                inputs.layout.zero_stage = inputs.layout.dp > 1 && accumulation == 3 ? 1 : 0;
                inputs.layout.micro_batch = accumulation == 3 ? 1 : 2;
                inputs.layout.global_batch = inputs.layout.dp * inputs.layout.micro_batch * accumulation;
                inputs.policies.seq_len = seq_len;
                inputs.policies.loss_chunks = 2;
                inputs.policies.eval_micro_batch = 3;
                if (!validate(inputs.layout, model, world).empty()) { continue; }
                check_layout(inputs);
                if (::testing::Test::HasFailure()) { return; }
            }
        }
    }
}

}  // namespace

TEST(RecordedStep, OneRankIsAsPlanned)
{
    for (const ModelSpec& model : {gpt2(), llama(4), qwen3()}) { check_world(model, 1); }
}

TEST(RecordedStep, TwoRanksAreAsPlanned)
{
    for (const ModelSpec& model : {gpt2(), llama(4), qwen3()}) { check_world(model, 2); }
}

TEST(RecordedStep, FourRanksAreAsPlanned)
{
    for (const ModelSpec& model : {gpt2(), llama(4), qwen3()}) { check_world(model, 4); }
}

TEST(RecordedStep, EightRanksAreAsPlanned)
{
    for (const ModelSpec& model : {gpt2(), llama(8), qwen3()}) { check_world(model, 8); }
}

TEST(RecordedStep, ZeroStagesBucketsAndReplicasAreAsPlanned)
{
    struct Variant
    {
        std::int64_t dp, tp, pp;
        int zero;
        std::int64_t dp_shard, bucket, resident;
        Prefetch prefetch;
    };
    for (const ModelSpec& model : {gpt2(), llama(4), qwen3()})
    {
        for (const Variant& v : std::vector<Variant>{{2, 1, 1, 0, 0, 40000, 0, Prefetch::on},
                                                     {2, 1, 1, 2, 0, 0, 0, Prefetch::on},
                                                     {2, 1, 1, 3, 0, 0, 0, Prefetch::on},
                                                     {4, 1, 1, 3, 0, 40000, 6000, Prefetch::off},
                                                     {3, 1, 2, 2, 0, 40000, 0, Prefetch::on},
                                                     {2, 1, 3, 3, 0, 0, 0, Prefetch::on},
                                                     {2, 2, 2, 3, 0, 30000, 0, Prefetch::on},
                                                     {2, 4, 1, 2, 0, 0, 0, Prefetch::on},
                                                     {4, 2, 1, 1, 2, 0, 0, Prefetch::on},
                                                     {4, 1, 2, 3, 2, 0, 0, Prefetch::on}})
        {
            StepInputs inputs;
            inputs.model = model;
            inputs.layout.dp = v.dp;
            inputs.layout.tp = v.tp;
            inputs.layout.pp = v.pp;
            inputs.layout.zero_stage = v.zero;
            inputs.layout.dp_shard = v.dp_shard;
            inputs.layout.bucket_bytes = v.bucket;
            inputs.layout.resident_bytes = v.resident;
            inputs.layout.prefetch = v.prefetch;
            inputs.layout.global_batch = v.dp * 3;
            inputs.policies.seq_len = seq_len;
            inputs.policies.loss_chunks = 2;
            inputs.policies.eval_micro_batch = 3;
            check_layout(inputs);
            if (::testing::Test::HasFailure()) { return; }
        }
    }
}

TEST(RecordedStep, SchedulesAndSplitsAreAsPlanned)
{
    struct Row
    {
        const char* schedule;
        const char* split;
        std::int64_t dp, tp, pp, accumulation;
        ModelSpec model = gpt2();
        int zero = 0;
        double dropout = 0;
        std::int64_t chunks = 1;
    };
    for (const Row& row : {Row{"gpipe", "even", 1, 1, 2, 3}, Row{"gpipe", "1,4,2,1", 1, 2, 4, 5}, Row{"gpipe", "even", 2, 1, 1, 3},
                           Row{"1f1b", "3,3,2", 1, 1, 3, 4}, Row{"1f1b", "auto", 2, 1, 4, 3},
                           Row{"zb-h1", "even", 1, 1, 2, 1}, Row{"zb-h1", "even", 1, 1, 4, 6}, Row{"zb-h1", "1,4,2,1", 1, 2, 4, 5},
                           Row{"zb-h1", "3,3,2", 1, 1, 3, 4, llama(4)}, Row{"zb-h1", "even", 2, 2, 2, 3, qwen3()},
                           Row{"zb-h1", "even", 2, 1, 1, 3}, Row{"gpipe", "3,3,2", 2, 1, 3, 3, gpt2(), 3},
                           Row{"zb-h1", "even", 2, 1, 2, 4, gpt2(), 1}, Row{"zb-h1", "even", 2, 1, 4, 5, gpt2(), 2},
                           Row{"zb-h1", "1,4,3", 2, 1, 3, 4, qwen3(), 3}, Row{"zb-h1", "even", 1, 2, 2, 3, gpt2(), 0, 0.1},
                           Row{"zb-h1", "even", 1, 1, 2, 3, llama(4), 0, 0.1},
                           Row{"interleaved", "even", 1, 1, 2, 4, gpt2(), 0, 0, 2}, Row{"interleaved", "even", 1, 1, 2, 4, qwen3(), 0, 0, 3},
                           Row{"interleaved", "2,1,1,1,2,1", 1, 1, 3, 6, llama(4), 0, 0.1, 2},
                           Row{"interleaved", "even", 1, 2, 4, 4, gpt2(), 0, 0, 2}, Row{"interleaved", "even", 2, 2, 2, 4, qwen3(), 3, 0, 2},
                           Row{"interleaved", "auto", 2, 1, 2, 6, gpt2(), 2, 0, 3}, Row{"interleaved", "even", 2, 1, 2, 2, llama(4), 1, 0, 4},
                           Row{"zbv", "even", 1, 1, 2, 4, gpt2(), 0, 0, 2}, Row{"zbv", "even", 1, 1, 2, 1, llama(4), 0, 0, 2},
                           Row{"zbv", "even", 1, 1, 3, 6, qwen3(), 0, 0, 2}, Row{"zbv", "1,2,1,1,2,1", 1, 2, 3, 4, gpt2(), 0, 0.1, 2},
                           Row{"zbv", "even", 1, 2, 4, 7, llama(4), 0, 0, 2}, Row{"zbv", "even", 2, 1, 2, 4, qwen3(), 1, 0, 2},
                           Row{"zbv", "even", 2, 1, 4, 5, gpt2(), 2, 0, 2}, Row{"zbv", "even", 2, 2, 2, 3, qwen3(), 3, 0.1, 2}})
    {
        StepInputs inputs;
        inputs.model = row.model;
        inputs.layout.dp = row.dp;
        inputs.layout.tp = row.tp;
        inputs.layout.pp = row.pp;
        inputs.layout.global_batch = row.dp * row.accumulation;
        inputs.layout.schedule = parse_pipeline_kind(row.schedule);
        inputs.layout.split = parse_stage_split(row.split);
        inputs.layout.virtual_stages = row.chunks;
        inputs.layout.zero_stage = row.zero;
        inputs.layout.resident_bytes = 0;
        inputs.policies.seq_len = seq_len;
        inputs.policies.loss_chunks = 2;
        inputs.policies.hidden_dropout = row.dropout;
        inputs.policies.eval_micro_batch = 3;
        ASSERT_TRUE(validate(inputs.layout, inputs.model, inputs.layout.world()).empty());
        SCOPED_TRACE(fmt::format("{} {}", row.schedule, row.split));
        check_layout(inputs);
        if (::testing::Test::HasFailure()) { return; }
    }
}

TEST(RecordedStep, DoublePrecisionIsAsPlanned)
{
    StepInputs inputs;
    inputs.model = qwen3();
    inputs.layout.tp = 2;
    inputs.layout.pp = 2;
    inputs.layout.micro_batch = 2;
    inputs.layout.global_batch = 6;
    inputs.policies.seq_len = seq_len;
    inputs.policies.dtype = Dtype::f64;
    inputs.policies.eval_micro_batch = 1;
    check_layout(inputs);
}

TEST(RecordedStep, Bf16IsAsPlanned)
{
    struct Row
    {
        std::int64_t dp, tp, pp, accumulation;
        int zero;
        const char* schedule = "1f1b";
        double dropout = 0;
        bool sequence_parallel = false;
    };
    for (const ModelSpec& model : {gpt2(), llama(4), qwen3()})
    {
        for (const Row& row : {Row{1, 1, 1, 2, 0}, Row{2, 1, 1, 1, 0}, Row{2, 1, 1, 3, 1}, Row{2, 1, 1, 3, 2}, Row{2, 1, 1, 3, 3},
                               Row{1, 2, 1, 1, 0}, Row{1, 1, 2, 3, 0}, Row{2, 2, 2, 3, 3}, Row{2, 1, 2, 4, 1, "zb-h1"},
                               Row{1, 2, 2, 3, 0, "1f1b", 0.1}, Row{1, 4, 1, 1, 0}, Row{1, 2, 1, 3, 0, "1f1b", 0.1, true},
                               Row{2, 2, 2, 4, 3, "zbv", 0, true}, Row{1, 2, 2, 4, 0, "interleaved"}})
        {
            StepInputs inputs;
            inputs.model = model;
            inputs.layout.dp = row.dp;
            inputs.layout.tp = row.tp;
            inputs.layout.pp = row.pp;
            inputs.layout.zero_stage = row.zero;
            inputs.layout.schedule = parse_pipeline_kind(row.schedule);
            inputs.layout.virtual_stages = default_num_chunks(inputs.layout.schedule);
            inputs.layout.sequence_parallel = row.sequence_parallel;
            inputs.layout.resident_bytes = 0;
            inputs.layout.micro_batch = 2;
            inputs.layout.global_batch = row.dp * 2 * row.accumulation;
            inputs.policies.seq_len = seq_len;
            inputs.policies.dtype = Dtype::bf16;
            inputs.policies.loss_chunks = 3;  // the last one has fewer rows
            inputs.policies.hidden_dropout = row.dropout;
            inputs.policies.eval_micro_batch = 3;
            check_layout(inputs);
            if (::testing::Test::HasFailure()) { return; }
        }
    }
}

TEST(RecordedStep, DropoutIsAsPlanned)
{
    for (const ModelSpec& model : {gpt2(), llama(4), qwen3()})
    {
        StepInputs inputs;
        inputs.model = model;
        inputs.layout.tp = 2;
        inputs.layout.pp = 2;
        inputs.layout.micro_batch = 2;
        inputs.layout.global_batch = 6;
        inputs.policies.seq_len = seq_len;
        inputs.policies.hidden_dropout = 0.1;
        inputs.policies.eval_micro_batch = 1;
        check_layout(inputs);
    }
}

TEST(RecordedStep, DocumentMasksAreAsPlanned)
{
    struct Row
    {
        ModelSpec model;
        std::int64_t dp, tp, pp;
        int zero;
        bool sequence_parallel;
        Dtype dtype;
    };
    for (const Row& row : {Row{gpt2(), 1, 1, 1, 0, false, Dtype::f32}, Row{llama(4), 1, 2, 1, 0, true, Dtype::f64},
                           Row{qwen3(), 1, 1, 2, 0, false, Dtype::f32}, Row{llama(2), 2, 1, 1, 3, false, Dtype::bf16},
                           Row{qwen3(), 1, 2, 1, 0, true, Dtype::bf16}})
    {
        StepInputs inputs;
        inputs.model = row.model;
        inputs.layout.dp = row.dp;
        inputs.layout.tp = row.tp;
        inputs.layout.pp = row.pp;
        inputs.layout.zero_stage = row.zero;
        inputs.layout.sequence_parallel = row.sequence_parallel;
        inputs.layout.micro_batch = 2;
        inputs.layout.global_batch = 4 * row.dp;
        inputs.policies.seq_len = seq_len;
        inputs.policies.dtype = row.dtype;
        inputs.policies.eval_micro_batch = 2;
        check_layout(inputs, Documents::apart);
        check_layout(inputs, Documents::whole);
    }
}

TEST(RecordedStep, SequenceParallelIsAsPlanned)
{
    struct Row
    {
        ModelSpec model;
        std::int64_t dp, tp, pp;
        int zero;
        const char* schedule;
        double dropout;
    };
    for (const Row& row : {Row{gpt2(), 1, 2, 1, 0, "1f1b", 0}, Row{gpt2(), 1, 4, 1, 0, "1f1b", 0.1}, Row{gpt2(), 2, 2, 1, 1, "1f1b", 0},
                           Row{llama(2), 2, 4, 1, 2, "1f1b", 0}, Row{llama(4), 1, 2, 2, 0, "gpipe", 0.1},
                           Row{qwen3(), 2, 2, 2, 3, "1f1b", 0}, Row{qwen3(), 1, 8, 1, 0, "1f1b", 0},
                           Row{gpt2(), 1, 2, 2, 0, "zb-h1", 0}, Row{qwen3(), 2, 2, 2, 2, "zb-h1", 0}})
    {
        StepInputs inputs;
        inputs.model = row.model;
        inputs.layout.dp = row.dp;
        inputs.layout.tp = row.tp;
        inputs.layout.pp = row.pp;
        inputs.layout.zero_stage = row.zero;
        inputs.layout.schedule = parse_pipeline_kind(row.schedule);
        inputs.layout.sequence_parallel = true;
        inputs.layout.micro_batch = 4;
        inputs.layout.global_batch = 12 * row.dp;
        inputs.policies.seq_len = 6;
        inputs.policies.loss_chunks = 2;
        inputs.policies.hidden_dropout = row.dropout;
        inputs.policies.eval_micro_batch = 3;  // 18 tokens: over tp 4 they are not cut
        ASSERT_TRUE(validate(inputs.layout, inputs.model, inputs.layout.world()).empty());
        ASSERT_TRUE(token_faults(inputs.layout, 6).empty());
        check_layout(inputs);
        const std::int64_t peak = plan_rank_memory(inputs).step.bytes;
        inputs.layout.sequence_parallel = false;
        EXPECT_LT(peak, plan_rank_memory(inputs).step.bytes);
        if (::testing::Test::HasFailure()) { return; }
    }
}

TEST(RecordedStep, APlanOfAHundredMebibytesHoldsWithinTwoPercent)
{
    // Large enough for every size of flash attention's blocks and more than one block of partial sums; two threads.
    StepInputs inputs;
    inputs.model = parse_model_spec(R"({"model_type":"gpt2","vocab_size":8003,"n_embd":256,"n_layer":3,"n_head":4,
        "n_positions":1024,"layer_norm_epsilon":1e-5,"activation_function":"gelu_new"})", "test");
    inputs.policies.threads = 2;
    inputs.policies.eval_micro_batch = 1;
    for (const std::int64_t length : {256, 1024})
    {
        inputs.policies.seq_len = length;
        EXPECT_GE(plan_rank_memory(inputs).step.bytes, std::int64_t{64} << 20);
        check_layout(inputs);
    }
    inputs.policies.dtype = Dtype::bf16;
    EXPECT_GE(plan_rank_memory(inputs).step.bytes, std::int64_t{64} << 20);
    check_layout(inputs);
}

TEST(RecordedStep, WithoutARecordingNothingIsNoted)
{
    EXPECT_EQ(thread_recorder(), nullptr);
    StepRecorder recorder;
    const at::Tensor tensor = at::empty({100});
    name_tensor(tensor, "y", MemoryUse::activations);
    EXPECT_TRUE(recorder.take().empty());
}

TEST(RankMemoryScope, CountsWhatItsThreadAllocatesWhoeverFrees)
{
    MemoryTracker& process = install_cpu_allocator();
    const std::int64_t before = process.current();
    at::Tensor made;
    MemoryTracker* tracker = nullptr;
    std::thread(
        [&]
        {
            RankMemoryScope memory;
            tracker = &memory.tracker();
            made = at::empty({1000});
            EXPECT_EQ(memory.tracker().current(), 4000);
        })
        .join();
    EXPECT_EQ(process.current(), before);
    EXPECT_EQ(tracker->current(), 4000);
    made = at::Tensor();
    EXPECT_EQ(tracker->current(), 0);
}

TEST(RankMemoryScope, NamingMovesBytesToTheirCategory)
{
    RankMemoryScope memory;
    const ScopedMemoryTag tag(MemoryTag::transient);
    const at::Tensor tensor = at::empty({1000});
    EXPECT_EQ(memory.tracker().at_peak(MemoryTag::transient), 4000);
    name_tensor(tensor.narrow(0, 10, 5), "y", MemoryUse::activations);  // a view names its block
    EXPECT_EQ(memory.tracker().current(MemoryTag::activations), 4000);
    EXPECT_EQ(memory.tracker().at_peak(MemoryTag::activations), 4000);
    EXPECT_EQ(memory.tracker().at_peak(MemoryTag::transient), 0);
    name_tensor(at::Tensor(), "y", MemoryUse::activations);
    float outside[4] = {};
    name_tensor(at::from_blob(outside, {4}), "y", MemoryUse::activations);
    EXPECT_EQ(memory.tracker().current(), 4000);
}
