#pragma once
/// What the ranks of a layout hold of a model's training state, as a checkpoint sees it. Pure.

#include <cstdint>
#include <string>
#include <vector>

#include "io/checkpoint.hpp"
#include "layout/device_mesh.hpp"
#include "layout/model_spec.hpp"
#include "layout/parallel_layout.hpp"

namespace plimsoll
{

/// A state that a checkpoint has, and the type of its elements.
struct StateType
{
    CheckpointState state = CheckpointState::model;
    Dtype dtype = Dtype::f32;
};

/// The boxes that each rank of the layout holds, by world rank (DeviceMesh): state by state as listed, in each the tensors in
/// order of its flat buffers; replicas on every rank that has one. `states` holds model: its type is that of the parameters.
/// @pre validate(layout, model, layout.world()) is empty
std::vector<std::vector<CheckpointBox>> held_boxes(const ModelSpec& model, const ParallelLayout& layout,
                                                   const std::vector<StateType>& states);

}  // namespace plimsoll
