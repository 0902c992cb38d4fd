#include "plan/memory_plan.hpp"

#include <gtest/gtest.h>

#include "base/error.hpp"
#include "layout/model_files.hpp"
#include "unit/plan/tiny_models.hpp"

using namespace plimsoll;
using namespace plimsoll::test;

namespace
{

constexpr std::int64_t mib = std::int64_t{1} << 20;

}  // namespace

TEST(MemoryPlan, ByHand)
{
    // Flat buffers (flat_layout.hpp), elements of 4 B in groups of 64: embedding 80 -> 128; block qkv 128, o 64, gate and up
    // 192, down 96 -> 128, two norms 64 each = 640; head 80 -> 128 and norm 64 = 192. Together 960, 3840 B a state.
    // rope: 2 tables of 4 x 2 elements.
    const RankMemory rank = plan_rank_memory(inputs_of(tiny_llama(), layout_of(1, 1, 1), 4));
    EXPECT_EQ(rank.start_up_bytes, 4 * 3840 + 2 * 32);
    EXPECT_EQ(rank.after_step_bytes, rank.start_up_bytes);
    // N = 4. Alive in the loss: embedding 128; input_norm 16 + 128; qkv 256, out 128, lse 32, y 128; mlp_norm 16 + 128; pre
    // 384, y 128 (act 192 ended); final_norm 16 + 128; logits 4 rows of one cache line 256.
    EXPECT_EQ(rank.step.bytes - rank.start_up_bytes, 128 + 144 + 544 + 144 + 512 + 144 + 256);
    EXPECT_EQ(rank.step.where(), "loss, micro-batch 1");
    EXPECT_EQ(rank.step.of(MemoryUse::parameters), 3840 + 64);
    EXPECT_EQ(rank.step.of(MemoryUse::gradients), 3840);
    EXPECT_EQ(rank.step.of(MemoryUse::optimizer), 2 * 3840);
    EXPECT_EQ(rank.step.of(MemoryUse::activations), 144 + 544 + 144 + 512);
    EXPECT_EQ(rank.step.of(MemoryUse::loss), 128 + 144 + 256);
    EXPECT_EQ(rank.step.of(MemoryUse::communication), 0);
    EXPECT_EQ(rank.step.of(MemoryUse::transient), 0);
    EXPECT_EQ(rank.validation.bytes, 0);
}

TEST(MemoryPlan, Bf16HoldsEighteenBytesForEachElement)
{
    // Parameter 2, gradient 4, moments and master 12 (Megatron's 18, and 6 + 12 / d with a distributed optimizer); rope tables stay
    // fp32. Every shard of every state is cut at the same elements.
    for (int zero = 0; zero <= 3; ++zero)
    {
        StepInputs inputs = inputs_of(tiny_llama(), layout_of(2, 1, 1, zero), 4);
        inputs.policies.dtype = Dtype::bf16;
        inputs.layout.resident_bytes = 0;
        const std::int64_t elements = make_flat_layout(inputs.model, inputs.layout, MeshCoordinate(), 2).num_elements();
        const std::int64_t d = 2, rope = 2 * 32;
        const std::int64_t expected = 2 * elements / (zero >= 3 ? d : 1) + 4 * elements / (zero >= 2 ? d : 1) +
                                      12 * elements / (zero >= 1 ? d : 1) + rope;
        EXPECT_EQ(plan_rank_memory(inputs).start_up_bytes, expected) << zero;
    }
}

TEST(MemoryPlan, BackwardOfALayerByHand)
{
    // The same model with 40 positions and one row of logits at a time: attention's backward is the peak.
    StepInputs inputs = inputs_of(tiny_llama(), layout_of(1, 1, 1), 40);
    inputs.policies.loss_chunks = 40;
    inputs.policies.threads = 2;
    const RankMemory rank = plan_rank_memory(inputs);
    // N = 40. Kept: embedding 1280; input_norm 160 + 1280; qkv 2560, out 1280, lse 320; final_norm.y 1280, now the gradient.
    // (All of the MLP and attention's y have ended.) For a while: dqkv 2560, dout 1280, dq 1280, dk 640, dv 640. Each of two
    // threads holds 32 x 40 scores, as many gradients of them, and 32 sums.
    const std::int64_t transient = 2560 + 1280 + 1280 + 640 + 640 + 2 * 4 * (2 * 32 * 40 + 32);
    EXPECT_EQ(rank.step.bytes - rank.start_up_bytes, 1280 + 1440 + 4160 + 1280 + transient);
    EXPECT_EQ(rank.step.where(), "backward of layer 0, micro-batch 1");
    EXPECT_EQ(rank.step.of(MemoryUse::transient), transient);
}

TEST(MemoryPlan, WorkspaceCountsAtItsMoment)
{
    MemoryFold fold;
    StepEvent event;
    event.kind = EventKind::alloc;
    event.category = MemoryUse::activations;
    event.bytes = 100;
    fold.add(event);
    event.kind = EventKind::workspace;
    event.category = MemoryUse::transient;
    event.bytes = 50;
    event.phase = StepPhase::backward;
    event.layer = 31;
    fold.add(event);
    event.kind = EventKind::free;
    event.category = MemoryUse::activations;
    event.bytes = 100;
    fold.add(event);
    EXPECT_EQ(fold.current(), 0);
    EXPECT_EQ(fold.peak().bytes, 150);
    EXPECT_EQ(fold.peak().of(MemoryUse::transient), 50);
    EXPECT_EQ(fold.peak().where(), "backward of layer 31");
}

TEST(MemoryPlan, FreeingWhatIsNotThereIsAFault)
{
    MemoryFold fold;
    StepEvent event;
    event.kind = EventKind::free;
    event.bytes = 1;
    EXPECT_THROW(fold.add(event), InternalError);
}

TEST(MemoryPlan, StepsLeaveNothingBehind)
{
    for (const ParallelLayout& layout :
         {layout_of(2, 2, 2, 1, 2, 3), layout_of(1, 1, 8, 0, 1, 16), layout_of(1, 8, 1), layout_of(4, 1, 2, 1, 1, 5)})
    {
        for (const RankMemory& rank : plan_memory(eight_layer_qwen3(), layout, inputs_of(tiny_llama(), layout, 16).policies).stages)
        {
            EXPECT_EQ(rank.after_step_bytes, rank.start_up_bytes);
            EXPECT_GT(rank.step.bytes, rank.start_up_bytes);
        }
    }
}

TEST(MemoryPlan, RepeatsLeftOutDoNotChangeThePeak)
{
    for (const std::int64_t pp : {1, 2, 4, 8})
    {
        for (const std::int64_t accumulation : {1, 3, 5, 12, 40})
        {
            for (std::int64_t stage = 0; stage < 3 * pp; ++stage)
            {
                StepInputs inputs = inputs_of(eight_layer_gpt2(), layout_of(1, 1, pp, 0, 1, accumulation), 16);
                constexpr PipelineKind kinds[] = {PipelineKind::one_f_one_b, PipelineKind::gpipe, PipelineKind::zb_h1};
                inputs.layout.schedule = kinds[stage / pp];
                inputs.coordinate.index[static_cast<std::size_t>(MeshAxis::pp)] = stage % pp;
                MemoryFold fold;
                const EventSink sink = [&](const StepEvent& event) { fold.add(event); };
                const RankProgram program(inputs);
                program.start_up(sink);
                fold.reset_peak();
                program.step(step_schedule(inputs.layout, Repeats::all), sink);
                EXPECT_EQ(plan_rank_memory(inputs).step.bytes, fold.peak().bytes) << "pp " << pp << " stage " << stage;
            }
        }
    }
}

TEST(MemoryPlan, RepeatsLeftOutDoNotChangeThePeakOfChunks)
{
    struct Row { PipelineKind kind; std::int64_t pp, chunks; };
    for (const Row& row : {Row{PipelineKind::interleaved, 2, 2}, Row{PipelineKind::interleaved, 2, 4}, Row{PipelineKind::interleaved, 4, 2},
                           Row{PipelineKind::zbv, 2, 2}, Row{PipelineKind::zbv, 3, 2}, Row{PipelineKind::zbv, 4, 2}})
    {
        for (const std::int64_t rounds : {1, 3, 12})
        {
            StepInputs inputs = inputs_of(eight_layer_gpt2(), layout_of(1, 1, row.pp, 0, 1, rounds * row.pp), 16);
            inputs.layout.schedule = row.kind;
            inputs.layout.virtual_stages = row.chunks;
            ASSERT_TRUE(validate(inputs.layout, inputs.model, row.pp).empty());
            for (std::int64_t stage = 0; stage < row.pp; ++stage)
            {
                inputs.coordinate.index[static_cast<std::size_t>(MeshAxis::pp)] = stage;
                EXPECT_EQ(plan_rank_memory(inputs).step.bytes,
                          plan_rank_memory(inputs, step_schedule(inputs.layout, Repeats::all)).step.bytes)
                    << layout_text(inputs.layout) << " rounds " << rounds << " stage " << stage;
            }
        }
    }
}

TEST(MemoryPlan, ChunksInFlightAreThoseOfTheFormulas)
{
    // Korthikanti et al. 2022: 1 + (p - 1) / (p v) times the activations of the whole model on the first stage; Narayanan et
    // al. 2021 for the others. A V: 2 p chunks of half a stage each.
    const std::int64_t p = 2, v = 4, layers = 8;
    ParallelLayout layout = layout_of(1, 1, p, 0, 1, 8);
    layout.schedule = PipelineKind::interleaved;
    layout.virtual_stages = v;
    const StepPolicies policies = inputs_of(tiny_llama(), layout, 16).policies;
    const MemoryPlan plan = plan_memory(eight_layer_gpt2(), layout, policies);
    for (std::int64_t stage = 0; stage < p; ++stage)
    {
        EXPECT_EQ(plan.stages[static_cast<std::size_t>(stage)].micro_batches_in_flight, 2 * (p - stage - 1) + (v - 1) * p + 1);
    }
    EXPECT_EQ(plan.stages[0].micro_batches_in_flight * layers / (p * v), layers + layers * (p - 1) / (p * v));
    // One stage keeps the activations of all layers of one micro-batch.
    const double one = static_cast<double>(
        plan_memory(eight_layer_gpt2(), layout_of(1, 1, 1), policies).stages[0].step.of(MemoryUse::activations));
    const double first = static_cast<double>(plan.stages[0].step.of(MemoryUse::activations));
    const double formula = 1.0 + static_cast<double>(p - 1) / static_cast<double>(p * v);
    EXPECT_LE(first / one, formula);
    EXPECT_GT(first / one, formula - 1.0 / static_cast<double>(layers));  // at the peak one layer is being worked at

    layout.schedule = PipelineKind::zbv;
    layout.virtual_stages = 2;
    for (const RankMemory& rank : plan_memory(eight_layer_gpt2(), layout, policies).stages)
    {
        EXPECT_EQ(rank.micro_batches_in_flight, 2 * p);
        EXPECT_EQ(rank.num_layers(), layers / p);
        EXPECT_EQ(rank.after_step_bytes, rank.start_up_bytes);
    }
}

TEST(MemoryPlan, GPipeKeepsEveryMicroBatchOnEveryStage)
{
    const auto plan_of = [](std::int64_t accumulation)
    {
        ParallelLayout layout = layout_of(1, 1, 4, 0, 1, accumulation);
        layout.schedule = PipelineKind::gpipe;
        return plan_memory(eight_layer_gpt2(), layout, inputs_of(tiny_llama(), layout, 16).policies);
    };
    const MemoryPlan six = plan_of(6), seven = plan_of(7), eight = plan_of(8);
    for (std::size_t stage = 0; stage < 4; ++stage)
    {
        EXPECT_EQ(eight.stages[stage].micro_batches_in_flight, 8);
        const auto kept = [&](const MemoryPlan& plan) { return plan.stages[stage].step.of(MemoryUse::activations); };
        EXPECT_EQ(kept(eight) - kept(seven), kept(seven) - kept(six));
        EXPECT_GT(kept(eight), kept(seven));
    }
}

TEST(MemoryPlan, ASplitBackwardEndsWithNothingAndItsPeakIsThatOfAllStages)
{
    for (const ModelSpec& model : {eight_layer_gpt2(), eight_layer_qwen3()})
    {
        for (const std::int64_t accumulation : {1, 3, 8})
        {
            ParallelLayout layout = layout_of(1, 1, 4, 0, 1, accumulation);
            layout.schedule = PipelineKind::zb_h1;
            const StepPolicies policies = inputs_of(tiny_llama(), layout, 16).policies;
            const MemoryPlan plan = plan_memory(model, layout, policies);
            for (const RankMemory& rank : plan.stages) { EXPECT_EQ(rank.after_step_bytes, rank.start_up_bytes); }
            EXPECT_EQ(planned_peak_bytes(model, layout, policies), plan.peak_bytes());
        }
    }
}

TEST(MemoryPlan, AnUnevenSplitMovesLayersAndThePeak)
{
    ParallelLayout layout = layout_of(1, 1, 4, 0, 1, 8);
    layout.split = parse_stage_split("1,1,5,1");
    const StepPolicies policies = inputs_of(tiny_llama(), layout, 16).policies;
    const MemoryPlan plan = plan_memory(eight_layer_gpt2(), layout, policies);
    EXPECT_EQ(plan.worst_stage(), 2);
    EXPECT_EQ(plan.stages[2].chunks.front().layers.first, 2);
    EXPECT_EQ(plan.stages[2].num_layers(), 5);
    EXPECT_EQ(planned_peak_bytes(plan.model, layout, policies), plan.peak_bytes());
}

TEST(MemoryPlan, FirstStagesKeepMoreMicroBatches)
{
    // 1F1B: stage s of 4 keeps 4 - s micro-batches; each keeps the same, since the layers divide.
    const MemoryPlan plan = plan_memory(eight_layer_gpt2(), layout_of(1, 1, 4, 0, 1, 8),
                                        inputs_of(tiny_llama(), layout_of(1, 1, 1), 16).policies);
    ASSERT_EQ(plan.stages.size(), 4U);
    for (std::int64_t stage = 0; stage < 4; ++stage)
    {
        EXPECT_EQ(plan.stages[static_cast<std::size_t>(stage)].micro_batches_in_flight, 4 - stage);
    }
    EXPECT_GT(plan.stages[1].peak().of(MemoryUse::activations), plan.stages[2].peak().of(MemoryUse::activations));
    EXPECT_EQ(plan.worst_stage(), 0);
}

TEST(MemoryPlan, ZeroOneDividesMomentsOnly)
{
    const StepPolicies policies = inputs_of(tiny_llama(), layout_of(1, 1, 1), 16).policies;
    const MemoryPeak whole = plan_memory(eight_layer_gpt2(), layout_of(4, 1, 1, 0), policies).stages[0].step;
    const MemoryPeak shard = plan_memory(eight_layer_gpt2(), layout_of(4, 1, 1, 1), policies).stages[0].step;
    EXPECT_EQ(shard.of(MemoryUse::optimizer) * 4, whole.of(MemoryUse::optimizer));
    EXPECT_EQ(shard.of(MemoryUse::gradients), whole.of(MemoryUse::gradients));
    EXPECT_EQ(shard.of(MemoryUse::parameters), whole.of(MemoryUse::parameters));
}

TEST(MemoryPlan, ValidationCanBeThePeak)
{
    StepInputs inputs = inputs_of(tiny_llama(), layout_of(1, 1, 1), 4);
    inputs.policies.eval_micro_batch = 64;
    const RankMemory rank = plan_rank_memory(inputs);
    EXPECT_GT(rank.validation.bytes, rank.step.bytes);
    EXPECT_EQ(&rank.peak(), &rank.validation);
    EXPECT_EQ(rank.peak().where(), "validation");
}

TEST(MemoryPlan, DoublePrecisionDoublesActivations)
{
    StepInputs inputs = inputs_of(tiny_llama(), layout_of(1, 1, 1), 4);
    const MemoryPeak single = plan_rank_memory(inputs).step;
    inputs.policies.dtype = Dtype::f64;
    const MemoryPeak twice = plan_rank_memory(inputs).step;
    EXPECT_EQ(twice.of(MemoryUse::activations), 2 * single.of(MemoryUse::activations));
    EXPECT_EQ(twice.of(MemoryUse::loss), 2 * single.of(MemoryUse::loss));
}

// DeepSpeed 7640: tensors of more than 2^31 elements.
TEST(MemoryPlan, LargestModelsStayWithinSixtyFourBits)
{
    const ModelSpec model = read_model_spec(find_model("llama-3.1-405b", "."));
    StepPolicies policies;
    policies.seq_len = 131072;
    policies.dtype = Dtype::f64;
    policies.threads = 64;
    const MemoryPlan plan = plan_memory(model, layout_of(1, 1, 1, 0, 64), policies);
    // 405.9 B parameters in four states of 8 B alone are 13 TB; the activations of 8 M tokens many times that.
    EXPECT_GT(plan.stages[0].start_up_bytes, 12'900'000'000'000);
    EXPECT_GT(plan.peak_bytes(), 10 * plan.stages[0].start_up_bytes);
}

TEST(MemoryPlan, Texts)
{
    EXPECT_EQ(memory_unit_for(5 * mib).text(5 * mib), "5.00");
    EXPECT_EQ(memory_unit_for(200 * mib).text(200 * mib), "200.0");
    EXPECT_STREQ(memory_unit_for(5000 * mib).name, "GiB");
    EXPECT_STREQ(memory_unit_for(5000).name, "KiB");
    EXPECT_EQ(plan_against_measured(112 * mib, 111 * mib), "plan 112.0 MiB, measured 111.0 MiB (-0.9 %)");
    EXPECT_EQ(plan_against_measured(0, 0), "plan 0.00 KiB, measured 0.00 KiB (+0.0 %)");
    const RankMemory rank = plan_rank_memory(inputs_of(tiny_llama(), layout_of(1, 1, 1), 4));
    EXPECT_EQ(plan_row(rank, limit_of(mib)), "peak 16.89 KiB per rank: parameters 3.81, gradients 3.75, optimizer 7.50, "
                                             "activations 1.31, loss 0.52   limit 1.00 MiB: ok");
}

TEST(MemoryPlan, JsonHasWhatReadersNeed)
{
    const MemoryPlan plan = plan_memory(eight_layer_gpt2(), layout_of(2, 2, 2, 1, 1, 2),
                                        inputs_of(tiny_llama(), layout_of(1, 1, 1), 16).policies);
    const nlohmann::ordered_json json = memory_plan_json(plan, limit_of(mib));
    EXPECT_EQ(json["schema"], 1);
    EXPECT_EQ(json["layout"]["world"], 8);
    EXPECT_EQ(json["fits"], plan.peak_bytes() <= mib);
    ASSERT_EQ(json["ranks"].size(), 2U);
    EXPECT_EQ(json["ranks"][1]["rank"], 4);  // tp 2 x dp 2 ranks lie before stage 1
    std::int64_t sum = 0;
    for (const auto& category : json["ranks"][1]["categories"]) { sum += category["bytes"].get<std::int64_t>(); }
    EXPECT_EQ(json["ranks"][1]["peak_bytes"], sum);
    EXPECT_TRUE(json["ranks"][0]["validation"].is_null());
}

TEST(MemoryPlan, MessagesNeedScratchForEveryGroupThatReducesMuch)
{
    // Little is less than 16 KiB: what tp sums is a micro-batch of 60 tokens x 64 x 4 B = 15 KiB. A block's gradients over dp are
    // 12 x 64 x 64 / 2 x 4 B = 96 KiB.
    StepInputs inputs = inputs_of(eight_layer_gpt2(), layout_of(1, 2, 1), 60);
    const std::int64_t threads = plan_rank_memory(inputs).start_up_bytes;
    inputs.policies.transport = Transport::messages;
    EXPECT_EQ(plan_rank_memory(inputs).start_up_bytes, threads);
    inputs.layout = layout_of(2, 2, 1);
    EXPECT_EQ(plan_rank_memory(inputs).step.of(MemoryUse::communication), 2 * mib);
    inputs.layout.zero_stage = 1;  // a reduce-scatter always takes scratch: two halves of 1 MiB
    EXPECT_EQ(plan_rank_memory(inputs).step.of(MemoryUse::communication), 2 * mib);
    inputs.layout.micro_batch = 16;
    inputs.layout.global_batch = 32;
    EXPECT_EQ(plan_rank_memory(inputs).step.of(MemoryUse::communication), 4 * mib);
    inputs.layout = layout_of(1, 1, 1);
    EXPECT_EQ(plan_rank_memory(inputs).step.of(MemoryUse::communication), 0);
}

// DeepSpeed 1302: ZeRO 2 that needs more than ZeRO 1.
TEST(MemoryPlan, EachZeroStageNeedsLessByWhatItShards)
{
    const ModelSpec model = eight_layer_gpt2();
    StepInputs inputs = inputs_of(model, layout_of(4, 1, 1, 0, 1, 3), 16);
    inputs.layout.bucket_bytes = 0;
    inputs.layout.resident_bytes = 0;
    const std::int64_t unit_bytes = make_flat_layout(model, inputs.layout, inputs.coordinate, 4).num_elements() * 4;
    std::vector<RankMemory> stages;
    for (int zero = 0; zero <= 3; ++zero)
    {
        inputs.layout.zero_stage = zero;
        stages.push_back(plan_rank_memory(inputs));
    }
    const std::int64_t three_quarters = unit_bytes / 4 * 3;
    EXPECT_EQ(stages[0].start_up_bytes - stages[1].start_up_bytes, 2 * three_quarters);  // moments
    EXPECT_EQ(stages[1].start_up_bytes - stages[2].start_up_bytes, three_quarters);      // gradients
    EXPECT_EQ(stages[2].start_up_bytes - stages[3].start_up_bytes, three_quarters);      // parameters
    // The peaks, less by that but for the units that are there for a while: two of gradients, two of parameters at most.
    std::int64_t largest = 0;
    for (const FlatUnit& unit : make_flat_layout(model, inputs.layout, inputs.coordinate, 4).units)
    {
        largest = std::max(largest, unit.num_elements * 4);
    }
    for (const std::size_t zero : {std::size_t{2}, std::size_t{3}})
    {
        const std::int64_t less = stages[zero - 1].step.bytes - stages[zero].step.bytes;
        EXPECT_GE(less, three_quarters - 2 * largest);
        EXPECT_LE(less, three_quarters);
        EXPECT_GT(less, 0);
    }
    // Replicas: a shard of a half instead of a quarter, of four states; units end at multiples of other numbers.
    inputs.layout.dp_shard = 2;
    EXPECT_NEAR(static_cast<double>(plan_rank_memory(inputs).start_up_bytes - stages[3].start_up_bytes),
                static_cast<double>(unit_bytes), 0.01 * static_cast<double>(unit_bytes));
}

TEST(MemoryPlan, SequenceParallelNeedsLessByWhatTpKeptWhole)
{
    // In the forward of the last layer: per layer the two norms' outputs and statistics, the two branches' outputs, and before all of
    // them the embedding's output, of which 3 of 4 parts go.
    for (const ModelSpec& model : {eight_layer_gpt2(), eight_layer_qwen3()})
    {
        StepInputs inputs = inputs_of(model, layout_of(1, 4, 1, 0, 4, 2), 64);
        inputs.policies.loss_chunks = 64;
        const auto kept = [&](bool cut)
        {
            inputs.layout.sequence_parallel = cut;
            MemoryFold fold;
            std::int64_t bytes = 0;
            RankProgram(inputs).step(step_schedule(inputs.layout, Repeats::all),
                                     [&](const StepEvent& event)
                                     {
                                         if (event.op == PlanOp::final_norm && bytes == 0) { bytes = fold.current(); }
                                         fold.add(event);
                                     });
            return bytes;
        };
        const std::int64_t tokens = 4 * 64, statistics = model.norm == NormKind::layer_norm ? 2 : 1;
        const std::int64_t whole = 8 * (4 * tokens * 64 + 2 * statistics * tokens) + tokens * 64;
        EXPECT_EQ(kept(false) - kept(true), whole * 4 / 4 * 3);  // 4 B each
        inputs.layout.sequence_parallel = true;
        const std::int64_t cut = plan_rank_memory(inputs).step.bytes;
        inputs.layout.sequence_parallel = false;
        EXPECT_LT(cut, plan_rank_memory(inputs).step.bytes);
    }
}

TEST(MemoryPlan, TheEndsAndTheSecondStageDecide)
{
    for (const ModelSpec& model : {eight_layer_gpt2(), eight_layer_qwen3()})
    {
        for (const std::int64_t pp : {1, 2, 3, 5, 7, 8})
        {
            for (const std::int64_t accumulation : {1, 2, 6, 20})
            {
                for (const std::int64_t seq_len : {8, 64})
                {
                    StepPolicies policies;
                    policies.seq_len = seq_len;
                    policies.eval_micro_batch = 2;
                    const ParallelLayout layout = layout_of(1, 1, pp, 0, 2, accumulation);
                    EXPECT_EQ(planned_peak_bytes(model, layout, policies), plan_memory(model, layout, policies).peak_bytes())
                        << "pp " << pp << " accumulation " << accumulation;
                }
            }
        }
    }
}
