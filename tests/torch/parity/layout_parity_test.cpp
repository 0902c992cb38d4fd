// What does not change even the bits, and terms that must not depend on the layout; over threads.

#include "torch/parity/parity_support.hpp"

using namespace plimsoll;
using namespace plimsoll::test;

namespace
{

/// Ten steps on eight ranks.
void expect_all_equal_to_the_bit(const std::vector<ParallelLayout>& layouts, at::ScalarType dtype)
{
    const auto first = record_of("qwen3", layouts.front(), dtype, 10);
    for (std::size_t i = 1; i < layouts.size(); ++i)
    {
        SCOPED_TRACE(layout_text(layouts[i]));
        expect_equal_to_the_bit(*record_of("qwen3", layouts[i], dtype, 10), *first);
    }
}

}  // namespace

// Megatron-LM 7452: label smoothing that differs by tp rank.
TEST(LayoutParity, DropoutLabelSmoothingAndZLossDependOnNoLayout)
{
    ParityTerms terms;
    terms.dropout.hidden = terms.dropout.embedding = 0.1;
    terms.label_smoothing = 0.1;
    terms.z_loss = 1e-3;
    const std::int64_t steps = 20;
    for (const char* model : {"gpt2", "llama-tied"})
    {
        const auto expected = record_of(model, parity_layout(1, 1, 1, 1, 0), at::kDouble, steps, terms);
        EXPECT_LT(expected->losses.back(), expected->losses.front() - 0.3) << "the model does not learn";
        for (const ParallelLayout& layout : {parity_layout(1, 1, 1, 3, 0), parity_layout(2, 1, 1, 1, 3), parity_layout(1, 2, 1, 3, 0),
                                             parity_layout(1, 1, 4, 3, 0), parity_layout(1, 2, 2, 3, 0)})
        {
            SCOPED_TRACE(layout_text(layout));
            expect_parity(*record_of(model, layout, at::kDouble, steps, terms), *expected, at::kDouble);
        }
    }
}

// DeepSpeed 4298: zero 2 and 3 with different losses.
TEST(LayoutParity, ZeroStagesBucketsAndPrefetchAreEqualToTheBit)
{
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat})
    {
        std::vector<ParallelLayout> once;
        for (int zero = 0; zero <= 3; ++zero) { once.push_back(parity_layout(4, 2, 1, 1, zero)); }
        once.push_back(once.back());
        once.back().prefetch = Prefetch::off;
        for (const int zero : {1, 2, 3})
        {
            once.push_back(parity_layout(4, 2, 1, 1, zero));
            once.back().bucket_bytes = 40000;       // several units
            once.back().resident_bytes = 10000;     // blocks are larger
        }
        expect_all_equal_to_the_bit(once, dtype);
        // Over several micro-batches sums are taken in two orders: on the rank first below zero 2, over the ranks first from
        // zero 2 on.
        expect_all_equal_to_the_bit({parity_layout(2, 2, 2, 3, 0), parity_layout(2, 2, 2, 3, 1)}, dtype);
        std::vector<ParallelLayout> each = {parity_layout(2, 2, 2, 3, 2), parity_layout(2, 2, 2, 3, 3)};
        each.push_back(each.back());
        each.back().bucket_bytes = std::int64_t{1} << 30;
        expect_all_equal_to_the_bit(each, dtype);
    }
}
