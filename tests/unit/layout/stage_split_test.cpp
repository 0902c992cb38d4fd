#include "layout/stage_split.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace plimsoll
{
namespace
{

using Layers = std::vector<std::int64_t>;

ModelSpec model_of(std::int64_t layers)
{
    ModelSpec model;
    model.vocab = 50257;
    model.hidden = 768;
    model.layers = layers;
    model.heads = model.kv_heads = 12;
    model.head_dim = 64;
    model.ffn = 3072;
    model.activation = Activation::gelu_tanh;
    return model;
}

ParallelLayout layout_of(std::int64_t pp, PipelineKind kind = PipelineKind::one_f_one_b, std::int64_t virtual_stages = 1)
{
    ParallelLayout layout;
    layout.pp = pp;
    layout.schedule = kind;
    layout.virtual_stages = virtual_stages;
    return layout;
}

/// Cost of the slowest part.
double slowest(const Layers& split, const LayerCosts& costs)
{
    double most = 0;
    for (std::size_t i = 0; i < split.size(); ++i)
    {
        const double ends = (i == 0 ? costs.embedding : 0) + (i + 1 == split.size() ? costs.head : 0);
        most = std::max(most, ends + costs.block * static_cast<double>(split[i]));
    }
    return most;
}

/// The best of all splits into `parts`, by trying them.
double best_of_all(Layers& split, std::int64_t layers, std::size_t parts, const LayerCosts& costs)
{
    if (split.size() + 1 == parts)
    {
        split.push_back(layers);
        const double cost = slowest(split, costs);
        split.pop_back();
        return cost;
    }
    double best = std::numeric_limits<double>::infinity();
    const auto later = static_cast<std::int64_t>(parts - split.size()) - 1;
    for (std::int64_t here = 1; here <= layers - later; ++here)
    {
        split.push_back(here);
        best = std::min(best, best_of_all(split, layers - here, parts, costs));
        split.pop_back();
    }
    return best;
}

}  // namespace

TEST(StageLayers, RemainderGoesToTheFirstStages)
{
    struct Row { std::int64_t layers, pp, stage, first, last; };
    for (const Row& row : {Row{1, 1, 0, 0, 1}, Row{7, 7, 6, 6, 7}, Row{7, 3, 0, 0, 3}, Row{7, 3, 1, 3, 5}, Row{7, 3, 2, 5, 7},
                           Row{126, 4, 0, 0, 32}, Row{126, 4, 1, 32, 64}, Row{126, 4, 2, 64, 95}, Row{126, 4, 3, 95, 126}})
    {
        const StageRange range = stage_chunks(model_of(row.layers), layout_of(row.pp), row.stage).front().layers;
        EXPECT_EQ(range.first, row.first) << row.layers << " " << row.pp << " " << row.stage;
        EXPECT_EQ(range.last, row.last) << row.layers << " " << row.pp << " " << row.stage;
    }
}

TEST(StageSplit, WorkedExample)
{
    const auto layers_on = [](PipelineKind kind, std::int64_t stage)
    {
        Layers list;
        for (const StageChunk& chunk : stage_chunks(model_of(8), layout_of(2, kind, 2), stage))
        {
            for (std::int64_t layer = chunk.layers.first; layer < chunk.layers.last; ++layer) { list.push_back(layer); }
        }
        return list;
    };
    EXPECT_EQ(layers_on(PipelineKind::interleaved, 0), (Layers{0, 1, 4, 5}));
    EXPECT_EQ(layers_on(PipelineKind::interleaved, 1), (Layers{2, 3, 6, 7}));
    EXPECT_EQ(layers_on(PipelineKind::zbv, 0), (Layers{0, 1, 6, 7}));
    EXPECT_EQ(layers_on(PipelineKind::zbv, 1), (Layers{2, 3, 4, 5}));
}

TEST(StageSplit, TheEndsOfAVStandOnOneStage)
{
    EXPECT_EQ(first_stage(layout_of(4, PipelineKind::zbv, 2)), 0);
    EXPECT_EQ(last_stage(layout_of(4, PipelineKind::zbv, 2)), 0);
    EXPECT_EQ(last_stage(layout_of(4, PipelineKind::interleaved, 2)), 3);
    EXPECT_EQ(last_stage(layout_of(4)), 3);
    EXPECT_EQ(last_stage(layout_of(1)), 0);
}

TEST(StageSplit, ChunksKnowTheirNeighbours)
{
    const auto neighbours = [](const ParallelLayout& layout, std::int64_t stage)
    {
        std::vector<std::pair<Neighbour, Neighbour>> list;
        for (const StageChunk& chunk : stage_chunks(model_of(8), layout, stage)) { list.emplace_back(chunk.before, chunk.behind); }
        return list;
    };
    using Pairs = std::vector<std::pair<Neighbour, Neighbour>>;
    constexpr Neighbour none = Neighbour::none, here = Neighbour::here, elsewhere = Neighbour::elsewhere;
    EXPECT_EQ(neighbours(layout_of(1), 0), (Pairs{{none, none}}));
    EXPECT_EQ(neighbours(layout_of(2, PipelineKind::interleaved, 2), 0), (Pairs{{none, elsewhere}, {elsewhere, elsewhere}}));
    EXPECT_EQ(neighbours(layout_of(2, PipelineKind::interleaved, 2), 1), (Pairs{{elsewhere, elsewhere}, {elsewhere, none}}));
    // The V turns on the last stage and ends where it began.
    EXPECT_EQ(neighbours(layout_of(2, PipelineKind::zbv, 2), 0), (Pairs{{none, elsewhere}, {elsewhere, none}}));
    EXPECT_EQ(neighbours(layout_of(2, PipelineKind::zbv, 2), 1), (Pairs{{elsewhere, here}, {here, elsewhere}}));
}

TEST(StageSplit, AListIsTaken)
{
    ParallelLayout layout = layout_of(3);
    layout.split = parse_stage_split("2,5,1");
    EXPECT_EQ(stage_chunks(model_of(8), layout, 1).front().layers.first, 2);
    EXPECT_EQ(stage_chunks(model_of(8), layout, 1).front().layers.last, 7);
    EXPECT_EQ(stage_chunks(model_of(8), layout, 2).front().layers.size(), 1);
}

TEST(StageSplit, ByCostTheHeadIsWorthItsBlocks)
{
    // GPT-2: a block multiplies 7.08 M weights, the head 38.6 M: 5.45 blocks.
    const LayerCosts costs = layer_costs(model_of(12));
    EXPECT_EQ(costs.block, 12.0 * 768 * 768);
    EXPECT_EQ(costs.head, 50257.0 * 768);
    ParallelLayout layout = layout_of(4);
    layout.split = parse_stage_split("auto");
    EXPECT_EQ(split_layers(model_of(12), layout), (Layers{3, 4, 4, 1}));
    EXPECT_EQ(split_layers(model_of(24), layout), (Layers{7, 8, 7, 2}));
    EXPECT_EQ(split_layers(model_of(4), layout), (Layers{1, 1, 1, 1}));
}

TEST(StageSplit, ByCostIsTheBestOfAllSplits)
{
    for (const double head : {0.0, 0.4, 1.0, 5.45, 20.0})
    {
        LayerCosts costs;
        costs.embedding = 0.7;
        costs.head = head;
        for (std::int64_t layers = 1; layers <= 10; ++layers)
        {
            for (std::int64_t parts = 1; parts <= std::min<std::int64_t>(layers, 5); ++parts)
            {
                const Layers split = split_by_cost(layers, parts, costs);
                Layers tried;
                EXPECT_DOUBLE_EQ(slowest(split, costs), best_of_all(tried, layers, static_cast<std::size_t>(parts), costs))
                    << layers << " layers, " << parts << " parts, head " << head;
            }
        }
    }
}

}  // namespace plimsoll
