#include "nn/ops/dropout.hpp"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>

#include "base/rng.hpp"
#include "nn/cpu_allocator.hpp"
#include "nn/kernels/dropout_kernels.hpp"
#include "nn/kernels/parallel.hpp"
#include "nn/ops/dispatch.hpp"

namespace plimsoll::nn
{

namespace
{

/// Calls body(first, words, count) for parts of the tensor whose words are drawn; parts in parallel.
template<class Body>
void for_masked_parts(const OpContext& ctx, const Dropout& dropout, const at::Tensor& x_ND, const Body& body)
{
    EXPECT(x_ND.dim() == 2 && x_ND.size(0) == ctx.stream_tokens() && dropout.rate >= 0 && dropout.rate < 1);
    constexpr std::int64_t block = 16384;
    constexpr std::int64_t words_at_once = 1024;
    const std::int64_t sample_elements = ctx.seq_len * x_ND.size(1);
    const std::int64_t before = ctx.first_token() * x_ND.size(1);  // elements of the micro-batch on other ranks
    const auto draw = [&](std::int64_t first, std::int64_t last)
    {
        std::array<std::uint32_t, words_at_once> words;
        while (first < last)
        {
            const std::int64_t sample = (before + first) / sample_elements, element = (before + first) % sample_elements;
            const CounterRng rng(ctx.seed, RngPurpose::dropout,
                                 hash_numbers({static_cast<std::uint64_t>(ctx.step),
                                               static_cast<std::uint64_t>(ctx.first_sample + sample),
                                               static_cast<std::uint64_t>(dropout.layer),
                                               static_cast<std::uint64_t>(dropout.site)}));
            const std::int64_t end = std::min(last, (sample + 1) * sample_elements - before);
            for (std::int64_t at = first; at < end; at += words_at_once)
            {
                const std::int64_t count = std::min(words_at_once, end - at);
                rng.fill_words(static_cast<std::uint64_t>(element + at - first), count, words.data());
                body(at, words.data(), count);
            }
            first = end;
        }
    };
    kernels::parallel_blocks(x_ND.numel(), block, draw);
}

void drop_into(const OpContext& ctx, const Dropout& dropout, const at::Tensor& x_ND, const at::Tensor& out_ND)
{
    const kernels::DropoutRule rule = kernels::dropout_rule(dropout.rate);
    dispatch_real(x_ND.scalar_type(),
                  [&](auto zero)
                  {
                      using T = decltype(zero);
                      const T* x = elements<T>(x_ND);
                      T* out = mutable_elements<T>(out_ND);
                      for_masked_parts(ctx, dropout, x_ND,
                                       [&](std::int64_t at, const std::uint32_t* words, std::int64_t count)
                                       { kernels::drop_vector(rule, words, x + at, out + at, count); });
                  });
}

}  // namespace

void dropout_in_place(const OpContext& ctx, const Dropout& dropout, const at::Tensor& x_ND)
{
    drop_into(ctx, dropout, x_ND, x_ND);
}

at::Tensor dropout_add(const OpContext& ctx, const Dropout& dropout, const at::Tensor& x_ND, const at::Tensor& branch_ND)
{
    EXPECT(x_ND.sizes() == branch_ND.sizes() && x_ND.scalar_type() == branch_ND.scalar_type());
    const kernels::DropoutRule rule = kernels::dropout_rule(dropout.rate);
    dispatch_real(x_ND.scalar_type(),
                  [&](auto zero)
                  {
                      using T = decltype(zero);
                      const T* x = elements<T>(x_ND);
                      T* sum = mutable_elements<T>(branch_ND);
                      for_masked_parts(ctx, dropout, x_ND,
                                       [&](std::int64_t at, const std::uint32_t* words, std::int64_t count)
                                       { kernels::drop_and_add(rule, words, x + at, sum + at, count); });
                  });
    return branch_ND;
}

at::Tensor dropout_backward(const OpContext& ctx, const Dropout& dropout, const at::Tensor& dy_ND)
{
    const at::Tensor dbranch_ND = at::empty(dy_ND.sizes(), dy_ND.options());
    name_tensor(dbranch_ND, "dbranch", MemoryUse::transient);
    drop_into(ctx, dropout, dy_ND, dbranch_ND);
    return dbranch_ND;
}

}  // namespace plimsoll::nn
