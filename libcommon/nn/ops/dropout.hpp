#pragma once
/// Dropout of the residual stream: an element is zero with probability p, else x / (1 - p).
///
/// Which elements are dropped follows from (seed, step, global sample, layer, site, element of the sample's [S, D]) by the
/// counter-based generator (to the bit: docs/data_order.md). So no layout, micro-batch, tp degree or number of threads changes
/// it, and backward draws the same mask again: nothing is kept. With tp all ranks drop the same elements of a stream that is
/// whole on each, and with sequence parallel each those of its own tokens.
///
/// Shapes: B, S of the context, N tokens of the stream (B*S, or this rank's share), D model; row n is token t = ctx.first_token() + n
/// of sample ctx.first_sample + t / S. f32 and f64.

#include "nn/op_context.hpp"

namespace plimsoll::nn
{

/// Persistent values: a run that is continued draws the same masks. Do not renumber.
enum class DropoutSite : std::uint64_t
{
    embedding = 1, ///< after token and position embedding; layer 0
    attention = 2, ///< attention's branch with the bias of its last projection, before the residual is added
    mlp = 3,       ///< the MLP's, likewise
};

struct Dropout
{
    double rate = 0;         ///< p, in [0, 1)
    DropoutSite site = DropoutSite::embedding;
    std::int64_t layer = 0;  ///< global number
};

/// Over x. Its own backward too: applied to dy it gives dx.
void dropout_in_place(const OpContext& ctx, const Dropout& dropout, const at::Tensor& x_ND);

/// x + dropout(branch), written over `branch_ND`, which is returned.
at::Tensor dropout_add(const OpContext& ctx, const Dropout& dropout, const at::Tensor& x_ND, const at::Tensor& branch_ND);

/// The gradient towards the branch of dropout_add(), in a tensor of its own: dy goes on to the residual.
at::Tensor dropout_backward(const OpContext& ctx, const Dropout& dropout, const at::Tensor& dy_ND);

}  // namespace plimsoll::nn
