// What does not change even the bits, and terms that must not depend on the layout; over threads.

#include "comm/thread_communicator.hpp"
#include "torch/parity/parity_support.hpp"

using namespace plimsoll;
using namespace plimsoll::test;

namespace
{

/// Ten steps on eight ranks.
void expect_equal_to_the_bit(const std::vector<ParallelLayout>& layouts, at::ScalarType dtype)
{
    const ModelSpec spec = table_model("qwen3");
    std::unique_ptr<ParityRecord> first;
    for (const ParallelLayout& layout : layouts)
    {
        auto record = std::make_unique<ParityRecord>();
        run_ranks(layout.world(), [&](Communicator& world) { parity_body(world, spec, layout, dtype, 10, *record); });
        if (!first)
        {
            first = std::move(record);
            continue;
        }
        SCOPED_TRACE(layout_text(layout));
        EXPECT_EQ(first->losses, record->losses);
        EXPECT_EQ(first->norms, record->norms);
        for (const auto& [name, tensor] : first->weights) { EXPECT_TRUE(at::equal(tensor, record->weights.at(name))) << name; }
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
        const ModelSpec spec = table_model(model);
        const auto run = [&](const ParallelLayout& layout, ParityRecord& record)
        {
            run_ranks(layout.world(),
                      [&](Communicator& world) { parity_body(world, spec, layout, at::kDouble, steps, record, terms); });
        };
        ParityRecord expected;
        run(parity_layout(1, 1, 1, 1, 0), expected);
        EXPECT_LT(expected.losses.back(), expected.losses.front() - 0.3) << "the model does not learn";
        for (const ParallelLayout& layout : {parity_layout(1, 1, 1, 3, 0), parity_layout(2, 1, 1, 1, 3), parity_layout(1, 2, 1, 3, 0),
                                             parity_layout(1, 1, 4, 3, 0), parity_layout(1, 2, 2, 3, 0)})
        {
            SCOPED_TRACE(layout_text(layout));
            ParityRecord got;
            run(layout, got);
            expect_parity(got, expected, at::kDouble);
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
        expect_equal_to_the_bit(once, dtype);
        // Over several micro-batches sums are taken in two orders: on the rank first below zero 2, over the ranks first from
        // zero 2 on.
        expect_equal_to_the_bit({parity_layout(2, 2, 2, 3, 0), parity_layout(2, 2, 2, 3, 1)}, dtype);
        std::vector<ParallelLayout> each = {parity_layout(2, 2, 2, 3, 2), parity_layout(2, 2, 2, 3, 3)};
        each.push_back(each.back());
        each.back().bucket_bytes = std::int64_t{1} << 30;
        expect_equal_to_the_bit(each, dtype);
    }
}
