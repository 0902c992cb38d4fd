#pragma once
/// Token embedding, with learned positions when the model has them: x[b, s] = tokens[id[b, s]] + positions[s]; with document masks
/// s counts from the beginning of the token's document.
///
/// Over tp the vocabulary is cut: a rank looks up the ids whose rows it holds, the other rows are zero, and the sum over the
/// group is the result (each row is added to zeros alone: exact). With sequence parallel x is of this rank's tokens, and so is the gradient
/// of the positions.
///
/// Shapes: B, S of the context, N = B*S, M of them in the residual stream, V vocabulary, D model, P positions. f32, f64 and bf16
/// (gradients fp32). There is no gradient
/// towards the input, so backward_input only hands its gradient over.

#include "nn/op_context.hpp"

namespace plimsoll::nn
{

struct EmbeddingParams
{
    at::Tensor tokens_VD;     ///< this rank's rows
    at::Tensor positions_PD;  ///< undefined: none; P >= S
    VocabSlice slice;
};

/// Views of the flat gradient buffer; undefined where absent or frozen. For a tied model the head adds into the same
/// view as `tokens_VD`.
struct EmbeddingGrads
{
    at::Tensor tokens_VD;
    at::Tensor positions_PD;
};

struct EmbeddingSaved
{
    at::Tensor ids_N;
    VocabSlice slice;
    std::vector<SavedTensor> tensors() const;
};

struct EmbeddingPending
{
    at::Tensor ids_N;
    VocabSlice slice;
    at::Tensor dy_MD;
    std::vector<SavedTensor> tensors() const;
};

struct EmbeddingForward
{
    at::Tensor y_MD;
    EmbeddingSaved saved;
};

/// `ids` is int64, contiguous, B*S elements in (b, s) order of any shape.
/// @throws FormatError for an id outside the vocabulary.
EmbeddingForward embedding_forward(const OpContext& ctx, const EmbeddingParams& params, const at::Tensor& ids);

EmbeddingPending embedding_backward_input(const OpContext& ctx, EmbeddingSaved&& saved, const at::Tensor& dy_MD);

/// Rows are added in token order whatever the number of threads.
void embedding_backward_weight(const OpContext& ctx, EmbeddingPending&& pending, EmbeddingGrads& grads);

}  // namespace plimsoll::nn
