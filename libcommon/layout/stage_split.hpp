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

/// What a virtual stage exchanges activations and gradients with.
enum class Neighbour : std::uint8_t
{
    none,      ///< the model begins or ends here
    here,      ///< another chunk of the same stage: tensors are handed over
    elsewhere, ///< on another stage: messages
};

/// One chunk of a stage and what stands before and behind it.
struct StageChunk
{
    StageRange layers;
    Neighbour before = Neighbour::none;
    Neighbour behind = Neighbour::none;
    bool is_first() const { return before == Neighbour::none; } ///< with the embedding
    bool is_last() const { return behind == Neighbour::none; }  ///< with the head
};

/// Layers of each virtual stage in turn. @pre validate(layout, model, layout.world()) is empty
std::vector<std::int64_t> split_layers(const ModelSpec& model, const ParallelLayout& layout);

/// The chunks of a stage, in the order in which a micro-batch passes them.
std::vector<StageChunk> stage_chunks(const ModelSpec& model, const ParallelLayout& layout, std::int64_t pp_rank);

/// The stage with the first virtual stage (embedding) and that with the last one (head); in a V they are one.
std::int64_t first_stage(const ParallelLayout& layout);
std::int64_t last_stage(const ParallelLayout& layout);
/// Whether embedding and head stand on two stages, so that each has a copy of a tied embedding.
inline bool ends_are_apart(const ParallelLayout& layout) { return first_stage(layout) != last_stage(layout); }

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
