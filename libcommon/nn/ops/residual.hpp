#pragma once
/// The residual connection: y = x + branch. Its backward hands dy to both sides unchanged.

#include "nn/op_context.hpp"

namespace plimsoll::nn
{

/// Written over `branch_ND`; x, which the branch's norm keeps, stays as it is. Returns the sum.
at::Tensor residual_add(const OpContext& ctx, const at::Tensor& x_ND, const at::Tensor& branch_ND);

}  // namespace plimsoll::nn
