#include "plan/step_program.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "unit/plan/tiny_models.hpp"

using namespace plimsoll;
using namespace plimsoll::test;

namespace
{

std::vector<std::string> names_of(const std::vector<StepEvent>& events, EventKind kind)
{
    std::vector<std::string> names;
    for (const StepEvent& event : events)
    {
        if (event.kind == kind) { names.push_back(std::string(plan_op_name(event.op)) + "." + event.name); }
    }
    return names;
}

/// All layouts of `world` ranks that the model allows, ZeRO 0 and 1, accumulation 1 and 3.
std::vector<ParallelLayout> layouts_of(const ModelSpec& model, std::int64_t world)
{
    std::vector<ParallelLayout> layouts;
    for (std::int64_t tp = 1; tp <= world; tp *= 2)
    {
        for (std::int64_t pp = 1; tp * pp <= world; pp *= 2)
        {
            for (const int zero : {0, 1})
            {
                for (const std::int64_t accumulation : {1, 3})
                {
                    ParallelLayout layout = layout_of(world / tp / pp, tp, pp, zero, 2, accumulation);
                    if (!validate(layout, model, world).empty()) { continue; }
                    layouts.push_back(layout);
                    layout.sequence_parallel = true;
                    if (tp > 1 && accumulation == 3) { layouts.push_back(layout); }
                }
            }
        }
    }
    return layouts;
}

/// Stages of several chunks and backwards in halves.
std::vector<ParallelLayout> layouts_with_chunks(std::int64_t world)
{
    std::vector<ParallelLayout> layouts;
    const auto add = [&](PipelineKind kind, std::int64_t tp, std::int64_t pp, std::int64_t chunks, std::int64_t accumulation, int zero)
    {
        ParallelLayout layout = layout_of(world / tp / pp, tp, pp, zero, 2, accumulation);
        layout.schedule = kind;
        layout.virtual_stages = chunks;
        layout.resident_bytes = 0;
        layouts.push_back(layout);
    };
    if (world == 1) { return layouts; }
    add(PipelineKind::interleaved, 1, 2, 2, 4, 0);
    add(PipelineKind::interleaved, 1, 2, 3, 2, world == 8 ? 3 : 0);
    add(PipelineKind::zbv, 1, 2, 2, 3, world == 8 ? 2 : 0);
    add(PipelineKind::zb_h1, 1, 2, 1, 5, 0);
    if (world == 2) { return layouts; }
    add(PipelineKind::interleaved, 2, 4, 2, 8, 0);
    add(PipelineKind::zbv, 1, 4, 2, 5, 3);
    add(PipelineKind::zbv, 2, 4, 2, 1, 0);
    return layouts;
}

template<class Visit>
void for_each_rank(const Visit& visit)
{
    for (const ModelSpec& model : {eight_layer_gpt2(), eight_layer_qwen3()})
    {
        for (const std::int64_t world : {1, 2, 8})
        {
            std::vector<ParallelLayout> layouts = layouts_of(model, world);
            const std::vector<ParallelLayout> more = layouts_with_chunks(world);
            layouts.insert(layouts.end(), more.begin(), more.end());
            for (const ParallelLayout& layout : layouts)
            {
                ASSERT_TRUE(validate(layout, model, world).empty());
                const DeviceMesh mesh(layout);
                for (std::int64_t rank = 0; rank < world; ++rank)
                {
                    StepInputs inputs = inputs_of(model, layout, 16);
                    inputs.policies.eval_micro_batch = 3;
                    inputs.policies.hidden_dropout = layout.accumulation() == 5 ? 0.1 : 0;
                    inputs.coordinate = mesh.coordinate(rank);
                    if (inputs.coordinate[MeshAxis::dp] > 0) { continue; }  // as dp rank 0
                    visit(inputs);
                }
            }
        }
    }
}

}  // namespace

TEST(ActivationTable, SizesByHand)
{
    // N = 2 x 4 tokens, D 8, H 2, K 1, E 4: T = (2 + 2) 4 = 16, A = 8; F 12, G 24; one block of partial sums; V 10.
    StepInputs inputs = inputs_of(tiny_llama(), layout_of(1, 1, 1), 4);
    const LocalShapes shapes = make_local_shapes(inputs.model, inputs.layout, inputs.coordinate, inputs.policies, 2);
    const ActivationTable table(inputs.model, shapes, Dtype::f32);
    const std::vector<std::tuple<PlanOp, const char*, std::int64_t>> expected = {
        {PlanOp::embedding, "y", 8 * 8},     {PlanOp::input_norm, "rstd", 8},     {PlanOp::input_norm, "y", 8 * 8},
        {PlanOp::attention, "qkv", 8 * 16},  {PlanOp::attention, "out", 8 * 8},   {PlanOp::attention, "lse", 8 * 2},
        {PlanOp::attention, "dqkv", 8 * 16}, {PlanOp::attention, "dk", 8 * 4},    {PlanOp::mlp, "pre", 8 * 24},
        {PlanOp::mlp, "act", 8 * 12},        {PlanOp::mlp, "dact", 8 * 12},       {PlanOp::final_norm, "dweight", 8},
        {PlanOp::head_loss, "logits", 8 * 16},  // all 8 rows are one chunk; a row of 10 fills one cache line of 16
        {PlanOp::pipeline, "x", 8 * 8},
    };
    for (const auto& [op, name, elements] : expected)
    {
        EXPECT_EQ(table.at(op, name).elements, elements) << plan_op_name(op) << "." << name;
        EXPECT_EQ(table.at(op, name).bytes(), 4 * elements);
    }
    EXPECT_EQ(table.find(PlanOp::input_norm, "mean"), nullptr);    // RMSNorm
    EXPECT_EQ(table.find(PlanOp::attention, "qk"), nullptr);       // no qk-norm
    EXPECT_EQ(table.find(PlanOp::mlp, "din_bias_parts"), nullptr); // no bias
}

TEST(ActivationTable, TensorParallelDividesWhatItSays)
{
    const ModelSpec model = eight_layer_gpt2();
    const auto table_of = [&](std::int64_t tp)
    {
        const StepInputs inputs = inputs_of(model, layout_of(1, tp, 1), 16);
        return ActivationTable(model, make_local_shapes(model, inputs.layout, inputs.coordinate, inputs.policies, 1),
                               Dtype::f64);
    };
    const ActivationTable whole = table_of(1), quarter = table_of(4);
    ASSERT_EQ(whole.tensors().size(), quarter.tensors().size());
    for (std::size_t i = 0; i < whole.tensors().size(); ++i)
    {
        const PlannedTensor& tensor = whole.tensors()[i];
        if (tensor.op == PlanOp::head_loss) { continue; }  // ceil(61 / 4) = 16 of 64 columns with padding
        const std::int64_t ranks = tensor.divided == DividedBy::tp ? 4 : 1;
        EXPECT_EQ(quarter.tensors()[i].elements * ranks, tensor.elements) << tensor.name;
    }
    EXPECT_EQ(quarter.at(PlanOp::head_loss, "logits").elements, 16 * 16);
}

// Korthikanti et al. 2022, table 2: with tensor and sequence parallel all that a layer keeps is divided. Their nanotron PR#203
// (memory.md 2.8) kept what was gathered, too: here none of it is.
TEST(ActivationTable, SequenceParallelDividesAllThatIsKept)
{
    for (const ModelSpec& model : {eight_layer_gpt2(), eight_layer_qwen3()})
    {
        const auto table_of = [&](std::int64_t tp)
        {
            StepInputs inputs = inputs_of(model, layout_of(1, tp, 1), 16);
            inputs.layout.sequence_parallel = true;
            return ActivationTable(model, make_local_shapes(model, inputs.layout, inputs.coordinate, inputs.policies, 3), Dtype::f32);
        };
        const ActivationTable whole = table_of(1), quarter = table_of(4);
        for (const PlannedTensor& tensor : whole.tensors())
        {
            if (tensor.op == PlanOp::head_loss || tensor.role != TensorRole::saved) { continue; }
            EXPECT_EQ(4 * quarter.at(tensor.op, tensor.name).elements, tensor.elements) << plan_op_name(tensor.op) << "." << tensor.name;
        }
        EXPECT_EQ(whole.find(PlanOp::attention, "all_x"), nullptr);
        for (const char* name : {"all_x", "all_dy", "partial"})
        {
            const PlannedTensor& gathered = quarter.at(PlanOp::mlp, name);
            EXPECT_EQ(gathered.elements, 48 * 64) << name;
            EXPECT_EQ(gathered.role, TensorRole::temporary) << name;
        }
    }
}

TEST(ActivationTable, KeyValueHeadsStayWholeWhenTheRanksAreMore)
{
    const ModelSpec model = eight_layer_qwen3();  // 4 KV heads
    const StepInputs inputs = inputs_of(model, layout_of(1, 8, 1), 16);
    const LocalShapes shapes = make_local_shapes(model, inputs.layout, inputs.coordinate, inputs.policies, 1);
    EXPECT_EQ(shapes.heads, 1);
    EXPECT_EQ(shapes.kv_heads, 1);
    EXPECT_EQ(shapes.qkv_columns(), 3 * 8);
}

TEST(StepProgram, WorkedExample)
{
    const StepProgram program = make_step_program(inputs_of(tiny_llama(), layout_of(1, 1, 1), 4));
    const std::vector<std::string> allocated = names_of(program.step, EventKind::alloc);
    const std::vector<std::string> forward = {
        "embedding.y", "input_norm.rstd", "input_norm.y", "attention.qkv", "attention.out", "attention.lse", "attention.y",
        "mlp_norm.rstd", "mlp_norm.y", "mlp.pre", "mlp.act", "mlp.y", "final_norm.rstd", "final_norm.y", "head_loss.logits"};
    ASSERT_GT(allocated.size(), forward.size());
    EXPECT_EQ(std::vector<std::string>(allocated.begin(), allocated.begin() + static_cast<std::ptrdiff_t>(forward.size())), forward);
    const std::vector<std::string> freed = names_of(program.step, EventKind::free);
    EXPECT_EQ(freed[0], "mlp.act");
    EXPECT_EQ(freed[1], "head_loss.logits");
    EXPECT_EQ(freed.back(), "final_norm.y");  // it carried the gradient down
    EXPECT_TRUE(names_of(program.step, EventKind::start).empty());
    EXPECT_TRUE(program.validation.empty());
}

TEST(StepProgram, EveryTensorBeginsOnceAndEndsOnce)
{
    for_each_rank(
        [](const StepInputs& inputs)
        {
            using Key = std::tuple<PlanOp, std::string, std::int64_t, std::int64_t>;
            const StepProgram program = make_step_program(inputs);
            for (const std::vector<StepEvent>* events : {&program.step, &program.validation})
            {
                std::map<Key, std::int64_t> alive;
                for (const StepEvent& event : *events)
                {
                    const Key key{event.op, event.name, event.layer, event.micro_batch};
                    if (event.kind == EventKind::alloc) { EXPECT_TRUE(alive.emplace(key, event.bytes).second) << event_text(event); }
                    if (event.kind != EventKind::free) { continue; }
                    const auto found = alive.find(key);
                    ASSERT_NE(found, alive.end()) << event_text(event);
                    EXPECT_EQ(found->second, event.bytes);
                    alive.erase(found);
                }
                EXPECT_TRUE(alive.empty());
            }
        });
}

TEST(StepProgram, EveryCollectiveIsWaitedForOnce)
{
    for_each_rank(
        [](const StepInputs& inputs)
        {
            const StepProgram program = make_step_program(inputs);
            std::set<std::int64_t> under_way;
            std::int64_t next = 0;
            for (const StepEvent& event : program.step)
            {
                if (event.kind == EventKind::start)
                {
                    EXPECT_EQ(event.id, next++);
                    under_way.insert(event.id);
                }
                if (event.kind == EventKind::wait) { EXPECT_EQ(under_way.erase(event.id), 1U) << event_text(event); }
            }
            EXPECT_TRUE(under_way.empty());
            EXPECT_EQ(next > 0, inputs.layout.world() > 1);
        });
}

TEST(StepProgram, MembersOfAGroupIssueTheSameCollectives)
{
    const ModelSpec model = eight_layer_qwen3();
    for (const ParallelLayout& layout : layouts_of(model, 8))
    {
        const DeviceMesh mesh(layout);
        const auto collectives = [&](std::int64_t rank, GroupKind group)
        {
            StepInputs inputs = inputs_of(model, layout, 16);
            inputs.coordinate = mesh.coordinate(rank);
            std::vector<std::string> found;
            for (const StepEvent& event : make_step_program(inputs).step)
            {
                if (event.kind == EventKind::start && event.group == group) { found.push_back(event_text(event)); }
            }
            return found;
        };
        for (std::int64_t rank = 0; rank < 8; ++rank)
        {
            EXPECT_EQ(collectives(mesh.group(MeshAxis::tp, rank).front(), GroupKind::tp), collectives(rank, GroupKind::tp));
            EXPECT_EQ(collectives(mesh.group(MeshAxis::dp, rank).front(), GroupKind::dp), collectives(rank, GroupKind::dp));
            EXPECT_EQ(collectives(0, GroupKind::world), collectives(rank, GroupKind::world));
        }
    }
}

TEST(StepProgram, ATiedEmbeddingInAVIsOneUnitWithoutAnExchange)
{
    ParallelLayout layout = layout_of(1, 1, 2, 0, 1, 2);
    const auto exchanges = [&](std::int64_t stage)
    {
        StepInputs inputs = inputs_of(eight_layer_gpt2(), layout, 16);
        inputs.coordinate.index[static_cast<std::size_t>(MeshAxis::pp)] = stage;
        const StepProgram program = make_step_program(inputs);
        const auto count = [](const std::vector<StepEvent>& events)
        { return std::count_if(events.begin(), events.end(), [](const StepEvent& e) { return e.group == GroupKind::embedding; }); };
        return count(program.step) + count(program.replica_check);
    };
    EXPECT_EQ(exchanges(0), 4);  // started and waited for in the step, and in the comparison of copies
    EXPECT_EQ(exchanges(1), 4);
    layout.schedule = PipelineKind::zbv;
    layout.virtual_stages = 2;
    EXPECT_EQ(exchanges(0), 0);
    EXPECT_EQ(exchanges(1), 0);
}

TEST(StepProgram, SequenceParallelGathersAndScattersInsteadOfSumming)
{
    // Per layer and micro-batch, of one message of all tokens each: forward 2 gathers and 2 scatters, backward the same mirrored, and
    // x once more for each of the two products along the outputs. Embedding: one scatter, one gather. Head: one of each.
    StepInputs inputs = inputs_of(eight_layer_gpt2(), layout_of(1, 2, 1, 0, 2, 3), 16);
    inputs.layout.sequence_parallel = true;
    std::map<CollectiveKind, std::int64_t> calls;
    for (const StepEvent& event : make_step_program(inputs).step)
    {
        const bool of_tokens = event.op != PlanOp::reduce && std::string(event.name) != "row statistics";
        if (event.kind != EventKind::start || event.group != GroupKind::tp || !of_tokens) { continue; }
        ++calls[event.collective];
        EXPECT_EQ(event.bytes, 2 * 16 * 64 * 4);
    }
    EXPECT_EQ(calls[CollectiveKind::all_reduce], 0);
    EXPECT_EQ(calls[CollectiveKind::all_gather], 3 * (8 * (2 + 2 + 2) + 1 + 1));
    EXPECT_EQ(calls[CollectiveKind::reduce_scatter], 3 * (8 * (2 + 2) + 1 + 1));
}

TEST(StepProgram, ZeroOneScattersGradientsAndGathersParameters)
{
    const auto bytes_of = [](int zero, CollectiveKind kind)
    {
        std::int64_t bytes = 0;
        for (const StepEvent& event : make_step_program(inputs_of(eight_layer_gpt2(), layout_of(4, 1, 1, zero), 16)).step)
        {
            if (event.kind == EventKind::start && event.group == GroupKind::dp && event.collective == kind) { bytes += event.bytes; }
        }
        return bytes;
    };
    const StepInputs inputs = inputs_of(eight_layer_gpt2(), layout_of(4, 1, 1), 16);
    const std::int64_t all = make_flat_layout(inputs.model, inputs.layout, inputs.coordinate, 4).num_elements() * 4;
    EXPECT_EQ(bytes_of(0, CollectiveKind::all_reduce), all);
    EXPECT_EQ(bytes_of(0, CollectiveKind::reduce_scatter), 0);
    EXPECT_EQ(bytes_of(1, CollectiveKind::all_reduce), 0);
    EXPECT_EQ(bytes_of(1, CollectiveKind::reduce_scatter), all);
    EXPECT_EQ(bytes_of(1, CollectiveKind::all_gather), all);
}

TEST(StepProgram, GradientsOfALayerAreReducedWhileTheBackwardOfTheNextRuns)
{
    for (const int zero : {0, 1, 2, 3})
    {
        StepInputs inputs = inputs_of(eight_layer_gpt2(), layout_of(2, 1, 1, zero, 1, 2), 16);
        inputs.layout.bucket_bytes = 0;
        const std::vector<StepEvent> events = make_step_program(inputs).step;
        const auto begin_of = [&](EventKind kind, PlanOp op, std::int64_t layer, const std::string& name)
        {
            // The last one: that of the last micro-batch.
            std::ptrdiff_t found = -1;
            for (std::size_t i = 0; i < events.size(); ++i)
            {
                const bool same = events[i].kind == kind && events[i].op == op && events[i].layer == layer && events[i].name == name;
                if (same) { found = static_cast<std::ptrdiff_t>(i); }
            }
            EXPECT_GE(found, 0) << name << " of layer " << layer;
            return found;
        };
        for (std::int64_t layer = 1; layer < 8; ++layer)
        {
            const auto sum = begin_of(EventKind::start, PlanOp::reduce, layer, "gradients");
            EXPECT_GT(sum, begin_of(EventKind::compute, PlanOp::attention, layer, "backward weight"));
            EXPECT_LT(sum, begin_of(EventKind::compute, PlanOp::mlp, layer - 1, "backward input"));
            const std::int64_t id = events[static_cast<std::size_t>(sum)].id;
            const auto end = std::find_if(events.begin(), events.end(), [&](const StepEvent& event)
                                          { return event.kind == EventKind::wait && event.id == id; });
            EXPECT_GT(end - events.begin(), begin_of(EventKind::compute, PlanOp::attention, layer - 1, "backward weight"));
        }
    }
}

TEST(StepProgram, TheNextLayerIsGatheredWhileOneComputes)
{
    StepInputs inputs = inputs_of(eight_layer_gpt2(), layout_of(2, 1, 1, 3), 16);
    inputs.layout.resident_bytes = 0;
    const std::vector<StepEvent> events = make_step_program(inputs).step;
    const auto first = [&](EventKind kind, PlanOp op, std::int64_t layer)
    {
        return std::find_if(events.begin(), events.end(), [&](const StepEvent& event)
                            { return event.kind == kind && event.op == op && event.layer == layer; });
    };
    for (std::int64_t layer = 1; layer < 8; ++layer)
    {
        EXPECT_LT(first(EventKind::start, PlanOp::gather, layer), first(EventKind::compute, PlanOp::attention, layer - 1));
    }
}

TEST(StepProgram, ProductsAddUpToTheModelsArithmetic)
{
    // 6 N per matmul parameter; attention: 2 products forward and 5 backward (the scores are made again), each
    // B A S (S + 1) with half of the pairs masked and 2 for multiply and add.
    const ModelSpec model = eight_layer_gpt2();
    double flops = 0;
    for (const StepEvent& event : make_step_program(inputs_of(model, layout_of(1, 1, 1, 0, 2), 16)).step)
    {
        if (event.kind == EventKind::compute && event.op != PlanOp::update && event.op != PlanOp::reduce) { flops += event.flops; }
    }
    const double products = 6.0 * 32 * static_cast<double>(num_matmul_parameters(model));
    const double attention = 8.0 * 7 * 2 * 64 * 16 * 17;
    EXPECT_DOUBLE_EQ(flops, products + attention);
}

TEST(StepProgram, StagesShareTheArithmetic)
{
    const ModelSpec model = eight_layer_gpt2();
    const auto flops_of = [&](const ParallelLayout& layout)
    {
        double flops = 0;
        const DeviceMesh mesh(layout);
        for (std::int64_t rank = 0; rank < layout.world(); ++rank)
        {
            StepInputs inputs = inputs_of(model, layout, 16);
            inputs.coordinate = mesh.coordinate(rank);
            for (const StepEvent& event : make_step_program(inputs).step)
            {
                if (event.phase == StepPhase::forward || event.phase == StepPhase::backward) { flops += event.flops; }
            }
        }
        return flops;
    };
    const double one = flops_of(layout_of(1, 1, 1, 0, 2, 4));
    EXPECT_DOUBLE_EQ(flops_of(layout_of(1, 1, 4, 0, 2, 4)), one);
    EXPECT_DOUBLE_EQ(flops_of(layout_of(1, 4, 2, 0, 2, 4)), one);
    EXPECT_DOUBLE_EQ(flops_of(layout_of(2, 2, 2, 1, 2, 2)), one);
    for (const PipelineKind kind : {PipelineKind::interleaved, PipelineKind::zbv})
    {
        ParallelLayout layout = layout_of(1, 1, 2, 0, 2, 4);
        layout.schedule = kind;
        layout.virtual_stages = 2;
        EXPECT_DOUBLE_EQ(flops_of(layout), one);
    }
}
