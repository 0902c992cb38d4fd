#pragma once
/// The last projection and its cross entropy, fused and in chunks of rows, so that the logits never exist as a
/// whole, nor twice: one chunk's buffer receives the logits and is turned in place into their gradient.
///
/// This operation departs from the three functions of the others: forward also makes dx and adds the weight's
/// gradient. Keeping something for a later backward would mean keeping the logits (N x V, the largest tensor of a
/// run) or computing them twice. The factor of the loss is a constant that is known beforehand (1 / (global batch x
/// sequence)), so nothing that comes later is needed.
///
///     loss_n = log(sum_v exp(logit_nv)) - logit_n,label         summed over rows with mask 1, in nats
///     dlogit = (softmax - onehot) * mask * scale
///
/// In training label smoothing and z-loss may join, within the same passes (formulas: nn/kernels/loss_kernels.hpp). Evaluation
/// knows the plain cross entropy only.
///
/// Over tp the vocabulary is cut: each rank makes the logits of its columns, the ranks exchange four figures per row
/// (largest logit, sum of exponentials, the label's logit, sum of logits), and dx is summed over the group. With sequence parallel x
/// and dx are of this rank's tokens, and all are gathered meanwhile; labels and mask are always of all N.
///
/// Shapes: N tokens, M of them in the residual stream, D model, V vocabulary. f32, f64 and bf16; the log-sum-exp is taken in that type by
/// blocks that are summed in f64. From bf16 hidden states and weights the logits are made in fp32, and so is all up to dx, which is rounded.

#include "nn/op_context.hpp"
#include "plan/kernel_shapes.hpp"

namespace plimsoll::nn
{

enum class LossMode
{
    train,     ///< loss, dx and the weight's gradient
    evaluate,  ///< loss only
};

struct HeadLossParams
{
    at::Tensor weight_VD;                   ///< this rank's rows
    VocabSlice slice;
    double scale = 1.0;                     ///< of the gradient, not of the returned sum
    double label_smoothing = 0;             ///< in [0, 1)
    double z_loss = 0;                      ///< coefficient, at least 0
    std::int64_t chunks = 0;                ///< number of chunks; 0: as many as `chunk_bytes` asks for
    std::int64_t chunk_bytes = loss_chunk_bytes;  ///< most bytes of one chunk's logits (at least one row is taken)
};

/// View of the flat gradient buffer; undefined when frozen. For a tied model it is the embedding's.
struct HeadLossGrads
{
    at::Tensor weight_VD;
};

struct HeadLossResult
{
    double loss_sum = 0;     ///< over the rows with mask 1; in LossMode::train with the terms
    double cross_entropy_sum = 0;  ///< the same without them
    std::int64_t count = 0;  ///< of these rows
    at::Tensor dx_MD;        ///< undefined in LossMode::evaluate
};

/// Rows of one chunk.
std::int64_t head_loss_chunk_rows(const HeadLossParams& params, std::int64_t num_rows);

/// @param labels_N int64, in [0, V) where mask_N (u8) is not 0; not read elsewhere
/// In LossMode::train dx is written over x: the caller gives x up.
/// @throws FormatError for a label outside the vocabulary.
HeadLossResult head_loss(const OpContext& ctx, const HeadLossParams& params, LossMode mode, const at::Tensor& x_MD,
                         const at::Tensor& labels_N, const at::Tensor& mask_N, HeadLossGrads& grads);

}  // namespace plimsoll::nn
