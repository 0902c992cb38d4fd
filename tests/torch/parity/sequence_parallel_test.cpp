// What the parity matrix does not say of sequence parallel: dropout and terms of the loss, and where bits are equal.

#include "torch/parity/parity_support.hpp"

using namespace plimsoll;
using namespace plimsoll::test;

namespace
{

ParallelLayout cut_layout(std::int64_t dp, std::int64_t tp, std::int64_t pp, std::int64_t accumulation, int zero)
{
    ParallelLayout layout = parity_layout(dp, tp, pp, accumulation, zero);
    layout.sequence_parallel = true;
    return layout;
}

}  // namespace

// training.md 4A, M#7452: terms of the loss over a cut vocabulary; 5.8: masks of hidden dropout on a rank's own tokens.
TEST(SequenceParallel, DropsTheSameElementsAndSmoothsTheSameLabels)
{
    ParityTerms terms;
    terms.dropout.hidden = terms.dropout.embedding = 0.1;
    terms.label_smoothing = 0.1;
    terms.z_loss = 1e-3;
    const std::int64_t steps = 20;
    for (const char* model : {"gpt2", "llama-tied"})
    {
        const auto expected = record_of(model, parity_layout(1, 1, 1, 1, 0), at::kDouble, steps, terms);
        for (const ParallelLayout& layout : {cut_layout(1, 2, 1, 8, 0), cut_layout(2, 4, 1, 4, 2), cut_layout(1, 2, 2, 3, 0)})
        {
            SCOPED_TRACE(layout_text(layout));
            expect_parity(*record_of(model, layout, at::kDouble, steps, terms), *expected, at::kDouble);
        }
    }
}

// training.md 4A, Bridge#5411: activations drifted over the layers and the norm was off by 9.8 %, since gathered and scattered sums
// were rounded otherwise. Here they are the sums of the all-reduce: the first loss, and the gradients of all that tp cuts, have its bits.
TEST(SequenceParallel, HasTheActivationsOfTensorParallelToTheBit)
{
    for (const char* model : {"gpt2", "qwen3"})
    {
        for (const at::ScalarType dtype : {at::kFloat, at::kDouble})
        {
            const auto whole = record_of(model, parity_layout(1, 4, 1, 8, 0), dtype, 1);
            const auto cut = record_of(model, cut_layout(1, 4, 1, 8, 0), dtype, 1);
            EXPECT_EQ(cut->losses.front(), whole->losses.front());
            for (const TensorSpec& tensor : canonical_tensors(table_model(model)))
            {
                if (tensor.shard.tp != Placement::shard) { continue; }
                EXPECT_TRUE(at::equal(cut->gradients.at(tensor.name), whole->gradients.at(tensor.name))) << tensor.name;
            }
        }
    }
}

TEST(SequenceParallel, ZeroStagesAreEqualToTheBit)
{
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat})
    {
        const auto first = record_of("qwen3", cut_layout(2, 2, 1, 1, 0), dtype, 10);
        for (const int zero : {1, 2, 3})
        {
            SCOPED_TRACE(zero);
            expect_equal_to_the_bit(*record_of("qwen3", cut_layout(2, 2, 1, 1, zero), dtype, 10), *first);
        }
    }
}

TEST(SequenceParallel, HasNoEffectOnOneTensorParallelRank)
{
    const auto plain = record_of("gpt2", parity_layout(2, 1, 1, 1, 1), at::kFloat, 3);
    expect_equal_to_the_bit(*record_of("gpt2", cut_layout(2, 1, 1, 1, 1), at::kFloat, 3), *plain);
}
