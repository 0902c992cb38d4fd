#include "nn/ops/token_shards.hpp"

#include <ATen/ops/empty.h>

#include <utility>

#include "base/error.hpp"
#include "nn/cpu_allocator.hpp"
#include "nn/ops/tensor_view.hpp"

namespace plimsoll::nn
{

at::Tensor gather_tokens(const OpContext& ctx, const at::Tensor& x_MD, const char* name)
{
    if (!ctx.cuts_tokens) { return x_MD; }
    EXPECT(x_MD.dim() == 2 && x_MD.size(0) == ctx.stream_tokens());
    at::Tensor x_ND = at::empty({ctx.tokens(), x_MD.size(1)}, x_MD.options());
    name_tensor(x_ND, name, MemoryUse::transient);
    ctx.tp->all_gather(buffer_view(x_MD), buffer_view(x_ND), *ctx.stream).wait(*ctx.stream);
    return x_ND;
}

at::Tensor sum_to_stream(const OpContext& ctx, at::Tensor partial_ND)
{
    if (!ctx.cuts_tokens)
    {
        sum_over_tp(ctx, partial_ND);
        return partial_ND;
    }
    name_tensor(partial_ND, "partial", MemoryUse::transient);
    at::Tensor sum_MD = at::empty({ctx.stream_tokens(), partial_ND.size(1)}, partial_ND.options());
    sum_to_stream(ctx, partial_ND, sum_MD);
    return sum_MD;
}

void sum_to_stream(const OpContext& ctx, const at::Tensor& partial_ND, const at::Tensor& sum_MD)
{
    EXPECT(partial_ND.dim() == 2 && partial_ND.size(0) == ctx.tokens() && sum_MD.size(0) == ctx.stream_tokens());
    ctx.tp->reduce_scatter(buffer_view(partial_ND), buffer_view(sum_MD), *ctx.stream).wait(*ctx.stream);
}

void sum_over_tp(const OpContext& ctx, const at::Tensor& partial)
{
    if (ctx.tp->size() == 1) { return; }
    ctx.tp->all_reduce(buffer_view(partial), ReduceOp::sum, *ctx.stream).wait(*ctx.stream);
}

}  // namespace plimsoll::nn
