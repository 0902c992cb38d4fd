#include "layout/stage_split.hpp"

#include <numeric>

#include "base/error.hpp"

namespace plimsoll
{

LayerCosts layer_costs(const ModelSpec& model)
{
    LayerCosts costs;
    costs.head = static_cast<double>(model.vocab * model.hidden);
    costs.block = (static_cast<double>(num_matmul_parameters(model)) - costs.head) / static_cast<double>(model.layers);
    costs.embedding = static_cast<double>(model.hidden);
    return costs;
}

std::vector<std::int64_t> split_by_cost(std::int64_t layers, std::int64_t parts, const LayerCosts& costs)
{
    EXPECT(parts >= 1 && parts <= layers);
    // Layers are alike: handing the next one to the part that is cheapest with it keeps the dearest as cheap as can be.
    std::vector<std::int64_t> split(static_cast<std::size_t>(parts), 1);
    std::vector<double> with_next(split.size(), 2 * costs.block);
    with_next.front() += costs.embedding;
    with_next.back() += costs.head;
    for (std::int64_t left = layers - parts; left > 0; --left)
    {
        std::size_t cheapest = 0;
        for (std::size_t i = 1; i < with_next.size(); ++i)
        {
            if (with_next[i] < with_next[cheapest]) { cheapest = i; }
        }
        ++split[cheapest];
        with_next[cheapest] += costs.block;
    }
    return split;
}

std::vector<std::int64_t> split_layers(const ModelSpec& model, const ParallelLayout& layout)
{
    const std::int64_t parts = layout.num_virtual_stages();
    EXPECT(parts >= 1 && parts <= model.layers);
    switch (layout.split.kind)
    {
        case SplitKind::even:
        {
            // Costs that are nothing but layers: the remainder goes to the first.
            return split_by_cost(model.layers, parts, LayerCosts());
        }
        case SplitKind::by_cost: return split_by_cost(model.layers, parts, layer_costs(model));
        case SplitKind::listed:
            EXPECT(static_cast<std::int64_t>(layout.split.layers.size()) == parts &&
                   std::accumulate(layout.split.layers.begin(), layout.split.layers.end(), std::int64_t{0}) == model.layers);
            return layout.split.layers;
    }
    throw InternalError("unknown stage split");
}

std::vector<StageChunk> stage_chunks(const ModelSpec& model, const ParallelLayout& layout, std::int64_t pp_rank)
{
    EXPECT(pp_rank >= 0 && pp_rank < layout.pp);
    const std::vector<std::int64_t> layers = split_layers(model, layout);
    const ChunkPlacement placement = placement_of(layout.schedule);
    const auto neighbour = [&](std::int64_t other)
    {
        if (other < 0 || other >= layout.num_virtual_stages()) { return Neighbour::none; }
        return chunk_place(placement, layout.pp, other).stage == pp_rank ? Neighbour::here : Neighbour::elsewhere;
    };
    std::vector<StageChunk> chunks;
    for (std::int64_t number = 0; number < layout.virtual_stages; ++number)
    {
        const std::int64_t here = virtual_stage(placement, layout.pp, pp_rank, number);
        StageChunk chunk;
        chunk.layers.first = std::accumulate(layers.begin(), layers.begin() + here, std::int64_t{0});
        chunk.layers.last = chunk.layers.first + layers[static_cast<std::size_t>(here)];
        chunk.before = neighbour(here - 1);
        chunk.behind = neighbour(here + 1);
        chunks.push_back(chunk);
    }
    return chunks;
}

std::int64_t first_stage(const ParallelLayout& layout)
{
    return chunk_place(placement_of(layout.schedule), layout.pp, 0).stage;
}

std::int64_t last_stage(const ParallelLayout& layout)
{
    return chunk_place(placement_of(layout.schedule), layout.pp, layout.num_virtual_stages() - 1).stage;
}

}  // namespace plimsoll
