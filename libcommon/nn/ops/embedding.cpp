#include "nn/ops/embedding.hpp"

#include <ATen/ops/empty.h>

#include <cstring>
#include <utility>

#include "nn/cpu_allocator.hpp"
#include "nn/kernels/parallel.hpp"
#include "nn/kernels/row_kernels.hpp"
#include "nn/ops/dispatch.hpp"
#include "nn/ops/token_positions.hpp"
#include "nn/ops/token_shards.hpp"

namespace plimsoll::nn
{

namespace
{

void check_ids(const std::int64_t* ids, std::int64_t count, std::int64_t vocab)
{
    for (std::int64_t n = 0; n < count; ++n)
    {
        VALIDATE(ids[n] >= 0 && ids[n] < vocab, FormatError,
                 "token id {} is outside the vocabulary of {} (data of another tokenizer?)", ids[n], vocab);
    }
}

/// Of all tp ranks one brings a token's position into the sum: the one that keeps the token, without sequence parallel the first.
struct OwnTokens
{
    std::int64_t first = 0, last = 0;
};

OwnTokens own_tokens(const OpContext& ctx)
{
    if (!ctx.cuts_tokens && ctx.tp->rank() != 0) { return {}; }
    return {ctx.first_token(), ctx.first_token() + ctx.stream_tokens()};
}

/// Rows of ids that are not here become zero (plus positions).
template<class T>
void look_up(const EmbeddingParams& params, const at::Tensor& ids_N, const TokenPositions& all_positions, const OwnTokens& own,
             const at::Tensor& y_ND)
{
    const std::int64_t num_rows = params.tokens_VD.size(0);
    const std::int64_t first_row = params.slice.first;
    const std::int64_t dim = y_ND.size(1);
    const std::int64_t* ids = elements<std::int64_t>(ids_N);
    const T* tokens = elements<T>(params.tokens_VD);
    const T* positions = optional_elements<T>(params.positions_PD);
    T* y = mutable_elements<T>(y_ND);
    kernels::parallel_for(y_ND.size(0), rows_per_task(dim),
                          [&](std::int64_t first, std::int64_t last)
                          {
                              TokenPositions in_document = all_positions;
                              for (std::int64_t n = first; n < last; ++n)
                              {
                                  const std::int64_t local = ids[n] - first_row;
                                  const bool here = local >= 0 && local < num_rows;
                                  const bool adds = positions != nullptr && n >= own.first && n < own.last;
                                  const T* position = adds ? positions + in_document.at(n) * dim : nullptr;
                                  const T* row = here ? tokens + local * dim : position;
                                  T* out = y + n * dim;
                                  if (here && position != nullptr) { kernels::add_vectors(row, position, out, dim); }
                                  else if (row != nullptr)
                                  {
                                      std::memcpy(out, row, static_cast<std::size_t>(dim) * sizeof(T));
                                  }
                                  else { std::memset(out, 0, static_cast<std::size_t>(dim) * sizeof(T)); }
                              }
                          });
}

/// Threads share the columns, not the rows: each adds all rows in token order, so that no two write to one element
/// and the order of additions is always the same. Target rows outside the gradient belong to other ranks.
template<class T, class TargetRow>
void add_rows_in_order(const at::Tensor& dy_ND, const at::Tensor& gradient, const TargetRow& target_of_all)
{
    const std::int64_t num_rows = dy_ND.size(0);
    const std::int64_t dim = dy_ND.size(1);
    const std::int64_t rows_here = gradient.size(0);
    const T* dy = elements<T>(dy_ND);
    Wide<T>* sum = mutable_elements<Wide<T>>(gradient);
    constexpr std::int64_t columns_per_task = 64;
    kernels::parallel_for(dim, columns_per_task,
                          [&](std::int64_t first, std::int64_t last)
                          {
                              TargetRow target_row = target_of_all;  // may remember where it was
                              for (std::int64_t n = 0; n < num_rows; ++n)
                              {
                                  const std::int64_t row = target_row(n);
                                  if (row < 0 || row >= rows_here) { continue; }
                                  Wide<T>* out = sum + row * dim + first;
                                  kernels::add_vectors(dy + n * dim + first, out, out, last - first);
                              }
                          });
}

}  // namespace

std::vector<SavedTensor> EmbeddingSaved::tensors() const { return {{"ids", ids_N}}; }

std::vector<SavedTensor> EmbeddingPending::tensors() const { return {{"ids", ids_N}, {"dy", dy_MD}}; }

EmbeddingForward embedding_forward(const OpContext& ctx, const EmbeddingParams& params, const at::Tensor& ids)
{
    EXPECT(ids.numel() == ctx.batch * ctx.seq_len);
    EXPECT(!params.positions_PD.defined() || params.positions_PD.size(0) >= ctx.seq_len);
    check_ids(elements<std::int64_t>(ids), ids.numel(), params.slice.size(params.tokens_VD.size(0)));
    EmbeddingForward result;
    result.saved.ids_N = ids.view({ids.numel()});
    result.saved.slice = params.slice;
    at::Tensor rows_ND = at::empty({ids.numel(), params.tokens_VD.size(1)}, params.tokens_VD.options());
    dispatch_real(rows_ND.scalar_type(),
                  [&](auto zero)
                  { look_up<decltype(zero)>(params, result.saved.ids_N, TokenPositions(ctx), own_tokens(ctx), rows_ND); });
    result.y_MD = sum_to_stream(ctx, std::move(rows_ND));
    name_tensor(result.y_MD, "y", MemoryUse::loss);
    return result;
}

EmbeddingPending embedding_backward_input(const OpContext&, EmbeddingSaved&& saved, const at::Tensor& dy_MD)
{
    EmbeddingPending pending;
    pending.ids_N = std::move(saved.ids_N);
    pending.slice = saved.slice;
    pending.dy_MD = dy_MD;
    return pending;
}

void embedding_backward_weight(const OpContext& ctx, EmbeddingPending&& pending, EmbeddingGrads& grads)
{
    const EmbeddingPending consumed = std::move(pending);
    const std::int64_t* ids = elements<std::int64_t>(consumed.ids_N);
    EXPECT(consumed.ids_N.numel() == ctx.tokens() && consumed.dy_MD.size(0) == ctx.stream_tokens());
    dispatch_real(consumed.dy_MD.scalar_type(),
                  [&](auto zero)
                  {
                      using T = decltype(zero);
                      if (grads.tokens_VD.defined())
                      {
                          // Any rank's token may be of a row that lies here.
                          add_rows_in_order<T>(gather_tokens(ctx, consumed.dy_MD, "all_dy"), grads.tokens_VD,
                                               [ids, first = consumed.slice.first](std::int64_t n)
                                               { return ids[n] - first; });
                      }
                      if (grads.positions_PD.defined())
                      {
                          add_rows_in_order<T>(consumed.dy_MD, grads.positions_PD,
                                               [positions = TokenPositions(ctx), first = ctx.first_token()](std::int64_t n) mutable
                                               { return positions.at(first + n); });
                      }
                  });
}

}  // namespace plimsoll::nn
