// What tp ranks exchange where the residual stream is cut by tokens, and the masks of their own tokens.

#include "nn/ops/token_shards.hpp"

#include <ATen/ops/randint.h>
#include <gtest/gtest.h>

#include <mutex>

#include "comm/thread_communicator.hpp"
#include "nn/ops/dropout.hpp"
#include "nn/ops/embedding.hpp"
#include "torch/nn/op_test_support.hpp"

namespace plimsoll::nn
{
namespace
{

/// 3 sequences of 8 tokens: over 4 ranks the cuts lie inside sequences.
OpContext cut_context(Communicator& tp)
{
    OpContext ctx = context(3, 8);
    ctx.tp = &tp;
    ctx.cuts_tokens = tp.size() > 1;
    return ctx;
}

at::Tensor own_rows(const OpContext& ctx, const at::Tensor& whole)
{
    return whole.narrow(0, ctx.first_token(), ctx.stream_tokens());
}

}  // namespace

TEST(TokenShards, SharesAreNeighboursInRankOrder)
{
    run_ranks(4,
              [](Communicator& tp)
              {
                  OpContext ctx = cut_context(tp);
                  EXPECT_EQ(ctx.tokens(), 24);
                  EXPECT_EQ(ctx.stream_tokens(), 6);
                  EXPECT_EQ(ctx.first_token(), 6 * tp.rank());
                  ctx.cuts_tokens = false;
                  EXPECT_EQ(ctx.stream_tokens(), 24);
                  EXPECT_EQ(ctx.first_token(), 0);
              });
}

TEST(TokenShards, AGatherPutsTheShardsTogether)
{
    at::manual_seed(71);
    for (const at::ScalarType type : both_types)
    {
        const at::Tensor whole = random({24, 5}, type);
        run_ranks(4,
                  [&](Communicator& tp)
                  {
                      const OpContext ctx = cut_context(tp);
                      EXPECT_TRUE(gather_tokens(ctx, own_rows(ctx, whole).clone(), "all_x").equal(whole));
                  });
    }
}

TEST(TokenShards, WithoutACutNothingIsCopied)
{
    const at::Tensor x = random({24, 5}, at::kFloat);
    const OpContext ctx = context(3, 8);
    EXPECT_EQ(gather_tokens(ctx, x, "all_x").data_ptr(), x.data_ptr());
    EXPECT_EQ(sum_to_stream(ctx, x).data_ptr(), x.data_ptr());
}

// training.md 4A, Bridge#5411: a scattered sum that is rounded otherwise than the whole one lets activations drift.
TEST(TokenShards, AScatteredSumHasTheBitsOfTheWholeOne)
{
    at::manual_seed(72);
    for (const at::ScalarType type : both_types)
    {
        const at::Tensor parts = random({4, 24, 5000}, type);  // chunks of the communicators, and a rest
        run_ranks(4,
                  [&](Communicator& tp)
                  {
                      const OpContext ctx = cut_context(tp);
                      const at::Tensor whole = parts[tp.rank()].clone(), part = parts[tp.rank()].clone();
                      sum_over_tp(ctx, whole);
                      EXPECT_TRUE(sum_to_stream(ctx, part).equal(own_rows(ctx, whole)));
                      const at::Tensor into = at::zeros({6, 5000}, part.options());
                      sum_to_stream(ctx, part, into);
                      EXPECT_TRUE(into.equal(own_rows(ctx, whole)));
                  });
    }
}

TEST(TokenShards, DropoutMasksAreThoseOfTheGlobalElements)
{
    at::manual_seed(73);
    const Dropout dropout = {0.4, DropoutSite::mlp, 2};
    for (const at::ScalarType type : both_types)
    {
        const at::Tensor x = random({24, 700}, type), branch = random({24, 700}, type);  // more than one block of elements
        const at::Tensor whole = dropout_add(context(3, 8), dropout, x, branch.clone());
        const at::Tensor gradient = dropout_backward(context(3, 8), dropout, x);
        for (const std::int64_t ranks : {2, 4})
        {
            run_ranks(ranks,
                      [&](Communicator& tp)
                      {
                          const OpContext ctx = cut_context(tp);
                          const at::Tensor own = own_rows(ctx, x).clone();
                          EXPECT_TRUE(dropout_add(ctx, dropout, own, own_rows(ctx, branch).clone()).equal(own_rows(ctx, whole)));
                          EXPECT_TRUE(dropout_backward(ctx, dropout, own).equal(own_rows(ctx, gradient)));
                      });
        }
    }
}

TEST(TokenShards, EmbeddingsOfACutVocabularyAndTheirGradients)
{
    at::manual_seed(74);
    // 7 rows over 2 ranks: 4 and 3.
    const at::Tensor tokens = random({7, 6}, at::kDouble), positions = random({8, 6}, at::kDouble), dy = random({24, 6}, at::kDouble);
    const at::Tensor ids = at::randint(0, 7, {24}, at::TensorOptions().dtype(at::kLong));
    const at::Tensor whole = tokens.index_select(0, ids) + positions.repeat({3, 1});
    at::Tensor dtokens = at::zeros_like(tokens);
    dtokens.index_add_(0, ids, dy);
    const at::Tensor dpositions = dy.view({3, 8, 6}).sum(0);
    const at::Tensor sum = at::zeros_like(positions);
    std::mutex mutex;
    run_ranks(2,
              [&](Communicator& tp)
              {
                  const OpContext ctx = cut_context(tp);
                  EmbeddingParams params;
                  params.slice.vocab = 7;
                  params.slice.first = 4 * tp.rank();
                  params.tokens_VD = tokens.narrow(0, params.slice.first, tp.rank() == 0 ? 4 : 3);
                  params.positions_PD = positions;
                  EmbeddingForward forward = embedding_forward(ctx, params, ids);
                  EXPECT_TRUE(forward.y_MD.equal(own_rows(ctx, whole)));
                  EmbeddingGrads grads;
                  grads.tokens_VD = at::zeros_like(params.tokens_VD);
                  grads.positions_PD = at::zeros_like(positions);
                  embedding_backward_weight(
                      ctx, embedding_backward_input(ctx, std::move(forward.saved), own_rows(ctx, dy).clone()), grads);
                  EXPECT_CLOSE(grads.tokens_VD, dtokens.narrow(0, params.slice.first, params.tokens_VD.size(0)), 1e-14);
                  const std::lock_guard<std::mutex> lock(mutex);
                  sum.add_(grads.positions_PD);
              });
    EXPECT_CLOSE(sum, dpositions, 1e-14) << "each position's gradient is a partial sum on each rank";
}

}  // namespace plimsoll::nn
