#pragma once
/// What each operation does to memory, in the order of its code in nn/ops and nn/block: pieces from which step_program puts a
/// step together. Events carry neither layer nor micro-batch; these are filled in where a script is replayed.

#include <vector>

#include "layout/model_spec.hpp"
#include "plan/activation_table.hpp"

namespace plimsoll
{

using OpScript = std::vector<StepEvent>;

/// Stands for the layer of an event that frees what came into the block: which tensor that is depends on the layer.
constexpr std::int64_t block_input_layer = -2;
/// The same for the gradient that came into the block from behind, where the block's gradient lies beside it.
constexpr std::int64_t block_gradient_layer = -3;

struct OpScripts
{
    /// Scripts of one rank for one size of micro-batch.
    OpScripts(const ModelSpec& model, const ActivationTable& table);

    OpScript embedding_forward;
    OpScript embedding_backward;
    OpScript block_forward;
    OpScript block_backward;        ///< consumes what block_forward saved
    OpScript block_backward_input;  ///< the same in two halves
    OpScript block_backward_weight;
    OpScript block_drop;            ///< validation: saved tensors go with the block
    OpScript head_step;             ///< last norm and loss, forward and backward; ends with final_norm.y as a gradient
    OpScript head_validate;         ///< last norm and loss; ends without any tensor
};

}  // namespace plimsoll
