#pragma once
/// Every tensor that the operations of one rank make for a micro-batch, with its size: the list that nn/ops obeys and the
/// step program adds up.
///
/// Legend: B sequences of a micro-batch, S their length, N = B*S tokens, M = N / tp of them with sequence parallel, else M = N, D model, E head dim, H heads, K KV heads, A = H*E,
/// T = (H + 2K)*E, F ffn, G = F or 2F (SwiGLU), V vocabulary; H, K, F and V are this rank's share. R = num_sum_blocks(N) rows of
/// partial sums, Q = num_sum_blocks(M). In the run's type; statistics, sums, lse and logits in sum_dtype() of it (layout/precision.hpp).
///
///     op          tensor        elements   kept
///     embedding   y             M D        saved by the first layer's norm; not with a stage before
///     *_norm      rstd, mean    M          saved; mean with LayerNorm only
///     *_norm      y             M D        saved by what follows; the last one becomes its own gradient
///     *_norm      dweight, dbias            D       pending; dweight_parts, dbias_parts: Q D, temporary
///     attention   qkv           N T        saved
///     attention   out           N A        saved
///     attention   lse           N H        saved
///     attention   y             M D        saved by mlp_norm: the sum of branch and residual is written over it
///     attention   qk            N (H+K)E   temporary, with qk-norm only
///     attention   dout, dq, dk, dv         N A, N A, N K E, N K E   temporary
///     attention   dqkv          N T        pending
///     attention   dx            M D        output of backward
///     attention, mlp  dbranch   M D        pending, with hidden dropout only: the gradient behind the mask
///     mlp         pre           N G        saved
///     mlp         act           N F        temporary
///     mlp         y             M D        saved by the next layer's norm, or sent
///     mlp         dact          N F        pending
///     mlp         dx            M D        output of backward
///     attention, mlp  d*_bias_parts  R columns  temporary, where the model has that bias; of o and down Q columns
///     head_loss   logits        chunk x V  temporary: one chunk, rows on cache lines
///     all with a weight: *_product, product           temporary, in a bf16 run only: product_scratch_elements() in fp32
///     attention   qkv_wide, out_wide       N T, N A   temporary, in a bf16 run only: what the attention kernel reads and writes, fp32
///     pipeline    x, dy         M D        received; dx and y are sent from where they were made
///
/// Only with sequence parallel, none kept from forward to backward:
///     attention, mlp, head_loss   all_x    N D   temporary: all tokens of what M of are kept, in forward and for the weights' gradient
///     attention, mlp, embedding   all_dy   N D   temporary: gathered for dx and still there for the weights' gradient; in a backward of two
///                                               halves gathered for each
///     attention, mlp, embedding   partial  N D   temporary: this rank's part of y or dx, before the ranks' are summed

#include <cstdint>
#include <vector>

#include "base/dtype.hpp"
#include "layout/device_mesh.hpp"
#include "layout/model_spec.hpp"
#include "layout/parallel_layout.hpp"
#include "plan/step_event.hpp"

namespace plimsoll
{

/// How ranks exchange data: threads read each other's buffers, messages need scratch (layout/collective_cost.hpp).
enum class Transport : std::uint8_t { threads, messages };

/// What decides a step besides model, layout and rank.
struct StepPolicies
{
    Dtype dtype = Dtype::f32;         ///< of parameters and activations: f32, f64 or bf16
    std::int64_t seq_len = 0;         ///< S
    std::int64_t loss_chunks = 0;     ///< [train] loss-chunks; 0: chunks of at most 64 MiB
    std::int64_t threads = 1;         ///< of a rank: kernels' workspace grows with it
    Transport transport = Transport::threads;
    double hidden_dropout = 0;        ///< above 0, backward makes a branch's gradient in a tensor of its own
    std::int64_t eval_micro_batch = 0; ///< sequences of a validation batch; 0: the run does not validate
};

enum class TensorRole : std::uint8_t
{
    saved,     ///< made by forward, kept for backward
    pending,   ///< made by backward_input for backward_weight
    output,    ///< handed to the next operation
    temporary, ///< gone when the operation ends
};

/// Which mesh axis divides a tensor. (dp divides the batch, pp the layers.)
enum class DividedBy : std::uint8_t { nothing, tp };

struct PlannedTensor
{
    PlanOp op = PlanOp::state;
    const char* name = "";
    TensorRole role = TensorRole::temporary;
    MemoryUse category = MemoryUse::transient;
    DividedBy divided = DividedBy::nothing;
    Dtype dtype = Dtype::f32;
    std::int64_t elements = 0;  ///< on this rank
    std::int64_t bytes() const { return elements * dtype_bytes(dtype); }
};

/// Extents of one rank's operations; letters as in the legend, lower case.
struct LocalShapes
{
    std::int64_t batch = 0, seq_len = 0, tokens = 0, hidden = 0;
    std::int64_t stream_tokens = 0;              ///< M
    std::int64_t heads = 0, kv_heads = 0, head_dim = 0;
    std::int64_t ffn = 0, pre_columns = 0;       ///< F, G
    std::int64_t vocab = 0;                      ///< real rows of the vocabulary on this rank
    std::int64_t vocab_columns = 0;              ///< of the rank that has most: decides the chunks
    std::int64_t chunk_rows = 0;                 ///< of the loss
    std::int64_t element_bytes = 4;              ///< of an activation
    std::int64_t sum_bytes = 4;                  ///< of sums, logits, and what the attention kernel computes with
    std::int64_t threads = 1;
    std::int64_t tp = 1;
    bool hidden_dropout = false;
    bool cuts_tokens() const { return stream_tokens < tokens; }
    std::int64_t attention_columns() const { return heads * head_dim; }
    std::int64_t qkv_columns() const { return (heads + 2 * kv_heads) * head_dim; }
};

/// @param batch B: the layout's micro-batch, or that of validation
LocalShapes make_local_shapes(const ModelSpec& model, const ParallelLayout& layout, const MeshCoordinate& coordinate,
                              const StepPolicies& policies, std::int64_t batch);

class ActivationTable
{
  public:
    ActivationTable(const ModelSpec& model, const LocalShapes& shapes, Dtype dtype);

    const std::vector<PlannedTensor>& tensors() const { return tensors_; }
    const LocalShapes& shapes() const { return shapes_; }
    /// nullptr: this model's operation makes no such tensor.
    const PlannedTensor* find(PlanOp op, const char* name) const;
    /// @throws InternalError when there is none
    const PlannedTensor& at(PlanOp op, const char* name) const;

    /// Most bytes that kernels of an operation allocate beside the named tensors.
    std::int64_t forward_workspace(PlanOp op) const;
    std::int64_t backward_workspace(PlanOp op) const;

  private:
    struct Adder;
    std::vector<PlannedTensor> tensors_;
    LocalShapes shapes_;
};

}  // namespace plimsoll
