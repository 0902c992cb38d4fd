#pragma once
/// Between the residual stream and operations that see all tokens: what tp ranks exchange.
///
///                      stream whole on every rank       stream cut by tokens (sequence parallel)
///     gather_tokens    nothing: the tensor itself       all-gather, M D -> N D
///     sum_to_stream    all-reduce in place              reduce-scatter, N D -> M D
///
/// Both sums are taken in rank order, element by element: they have the same bits, and so has every activation. What forward keeps
/// for backward is the M tokens; whoever needs all of them again (a weight's gradient) gathers again. f32 and f64.

#include "nn/op_context.hpp"

namespace plimsoll::nn
{

/// All tokens of a tensor of the stream, under a name of the activation table.
at::Tensor gather_tokens(const OpContext& ctx, const at::Tensor& x_MD, const char* name);

/// The sum over tp of every rank's partial result: this rank's tokens of it. Takes the memory of `partial_ND` where they are all.
at::Tensor sum_to_stream(const OpContext& ctx, at::Tensor partial_ND);
/// Into memory that is there.
void sum_to_stream(const OpContext& ctx, const at::Tensor& partial_ND, const at::Tensor& sum_MD);

/// Adds a partial result in place; all ranks receive all of it.
void sum_over_tp(const OpContext& ctx, const at::Tensor& partial);

}  // namespace plimsoll::nn
