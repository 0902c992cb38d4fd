// Token and position embedding against autograd.

#include <ATen/ops/index_select.h>
#include <ATen/ops/randint.h>

#include "base/error.hpp"
#include "nn/ops/embedding.hpp"
#include "torch/nn/op_test_support.hpp"

namespace plimsoll::nn
{
namespace
{

struct Case
{
    std::int64_t batch, seq_len, vocab, dim;
    bool positions;
};
const Case cases[] = {{1, 1, 1, 1, true}, {1, 5, 3, 7, false}, {4, 1, 9, 65, true}, {3, 50, 11, 200, true}};

at::Tensor random_ids(const Case& c)
{
    return at::randint(0, c.vocab, {c.batch, c.seq_len}, at::TensorOptions().dtype(at::kLong));
}

TEST(OpsEmbedding, MatchesAutogradAndAddsUp)
{
    at::manual_seed(31);
    for (const at::ScalarType type : both_types)
    {
        for (const Case& c : cases)
        {
            EmbeddingParams params;
            params.tokens_VD = random({c.vocab, c.dim}, type);
            if (c.positions) { params.positions_PD = random({c.seq_len + 2, c.dim}, type); }
            const at::Tensor ids = random_ids(c);
            const at::Tensor dy = random({c.batch * c.seq_len, c.dim}, type);

            const at::Tensor tokens = leaf(params.tokens_VD), positions = leaf(params.positions_PD);
            at::Tensor y = at::index_select(tokens, 0, ids.view({-1})).view({c.batch, c.seq_len, c.dim});
            if (c.positions) { y = y + positions.narrow(0, 0, c.seq_len); }
            y.view({-1, c.dim}).backward(dy.to(at::kDouble));

            const OpContext ctx = context(c.batch, c.seq_len);
            EmbeddingGrads grads;
            grads.tokens_VD = at::zeros_like(params.tokens_VD);
            if (c.positions) { grads.positions_PD = at::zeros_like(params.positions_PD); }
            for (int pass = 0; pass < 2; ++pass)
            {
                EmbeddingForward forward = embedding_forward(ctx, params, ids);
                EXPECT_CLOSE(forward.y_MD, y, tolerance(type));
                embedding_backward_weight(ctx, embedding_backward_input(ctx, std::move(forward.saved), dy), grads);
            }
            EXPECT_CLOSE(grads.tokens_VD, tokens.grad() * 2, tolerance(type));
            if (c.positions) { EXPECT_CLOSE(grads.positions_PD, positions.grad() * 2, tolerance(type)); }
        }
    }
}

TEST(OpsEmbedding, GradientHasTheSameBitsForEveryNumberOfThreads)
{
    at::manual_seed(32);
    const Case c = {8, 64, 5, 300, false};
    const at::Tensor ids = random_ids(c);
    const at::Tensor dy = random({c.batch * c.seq_len, c.dim}, at::kFloat);
    at::Tensor first;
    for (const int threads : {1, 2, 3})
    {
        const ThreadsGuard guard(threads);
        EmbeddingGrads grads;
        grads.tokens_VD = at::zeros({c.vocab, c.dim});
        EmbeddingPending pending;
        pending.ids_N = ids.view({-1});
        pending.dy_MD = dy;
        embedding_backward_weight(context(c.batch, c.seq_len), std::move(pending), grads);
        if (!first.defined()) { first = grads.tokens_VD; }
        EXPECT_TRUE(first.equal(grads.tokens_VD));
    }
}

TEST(OpsEmbedding, NamesAnIdOutsideTheVocabulary)
{
    EmbeddingParams params;
    params.tokens_VD = at::zeros({4, 2});
    for (const std::int64_t bad : {-1, 4})
    {
        const at::Tensor ids = at::zeros({1, 3}, at::TensorOptions().dtype(at::kLong));
        ids.mutable_data_ptr<std::int64_t>()[1] = bad;
        try
        {
            embedding_forward(context(1, 3), params, ids);
            FAIL() << "accepted " << bad;
        }
        catch (const FormatError& error)
        {
            EXPECT_EQ(error.text(),
                      fmt::format("token id {} is outside the vocabulary of 4 (data of another tokenizer?)", bad));
        }
    }
}

}  // namespace
}  // namespace plimsoll::nn
