#pragma once
/// Which layers stand on which stage.
///
/// Worked example (a test: StageSplit.WorkedExample): 8 layers on 2 stages of 2 chunks, evenly: virtual stages 0 to 3 hold layers
/// 0-1, 2-3, 4-5, 6-7. Dealt in turn, stage 0 holds 0-1 and 4-5; in a V it holds 0-1 and 6-7, so embedding and head too.

#include <cstdint>
#include <vector>

#include "layout/model_spec.hpp"
#include "layout/parallel_layout.hpp"

namespace plimsoll
{

/// Blocks [first, last).
struct StageRange
{
    std::int64_t first = 0;
    std::int64_t last = 0;
    std::int64_t size() const { return last - first; }
};

/// Layers of each virtual stage in turn. @pre validate(layout, model, layout.world()) is empty
std::vector<std::int64_t> split_layers(const ModelSpec& model, const ParallelLayout& layout);

/// The blocks of each chunk of a stage.
std::vector<StageRange> stage_chunks(const ModelSpec& model, const ParallelLayout& layout, std::int64_t pp_rank);

/// The blocks of a stage that holds one chunk. @pre layout.virtual_stages == 1
StageRange stage_layers(const ModelSpec& model, const ParallelLayout& layout, std::int64_t pp_rank);

/// The stage with the first virtual stage (embedding) and that with the last one (head); in a V they are one.
std::int64_t first_stage(const ParallelLayout& layout);
std::int64_t last_stage(const ParallelLayout& layout);

/// Time of a part of the model for one token, in weights that a token is multiplied with; attention's products of pairs of tokens
/// are the same on every layer and left out. The embedding is looked up: one row.
struct LayerCosts
{
    double embedding = 0;
    double block = 1;
    double head = 0;
};
LayerCosts layer_costs(const ModelSpec& model);

/// Layers per part so that the slowest part is as fast as can be, each part at least one; of equal choices the one that gives
/// layers to the first parts. @pre 1 <= parts <= layers
std::vector<std::int64_t> split_by_cost(std::int64_t layers, std::int64_t parts, const LayerCosts& costs);

}  // namespace plimsoll
