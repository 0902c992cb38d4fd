#pragma once
// How near a run in bf16 must stay to one rank in bf16. The gates are no figures set beforehand but follow from what rounds:
//
//   bits     the same sums in the same order, only on other ranks: losses, gradients and weights have the same bits. pp without a tied
//            embedding, under every schedule.
//   close    without tp: activations and their gradients have the same bits, sums of weights' gradients another order. The first step
//            is held to the gates of fp32. Then masters differ by fp32 rounding, now and then one that is near a tie is rounded to
//            the other bf16, and the runs part.
//            With tp each rank's part of a product's sum is rounded to bf16 before the parts are added: all differs by
//            roundings from the first product on, and so it may with another number of rows in a product (the rows of one rank).
//
// How far rounding may take a run is measured where there is no layout: one rank in bf16 beside one rank in fp32. Two runs that round
// independently part by sqrt(2) of it: twice of it is the gate of the first gradients, which average over many elements. Of the
// largest difference of a loss or a norm over the steps, a single draw of what grew since, it is three times.

#include <cmath>

#include "torch/parity/parity_support.hpp"

namespace plimsoll::test
{

/// The largest differences over the steps of `got`, whatever they are; a figure that is no number is a failure.
inline ParityFigures largest_differences(const ParityRecord& got, const ParityRecord& expected)
{
    ParityFigures figures;
    EXPECT_FALSE(got.losses.empty());
    EXPECT_LE(got.losses.size(), expected.losses.size());
    for (std::size_t i = 0; i < got.losses.size(); ++i)
    {
        EXPECT_TRUE(std::isfinite(got.losses[i]) && std::isfinite(got.norms[i])) << "step " << i + 1;
        figures.loss = std::max(figures.loss, relative_difference(got.losses[i], expected.losses[i]));
        figures.norm = std::max(figures.norm, relative_difference(got.norms[i], expected.norms[i]));
    }
    if (!got.gradients.empty())
    {
        figures.gradient = expect_gradients_close(got.gradients, expected.gradients, HUGE_VAL, gradient_floor(false));
    }
    return figures;
}

/// What bf16 itself does to the first `steps` of a model: one rank beside one rank in fp32.
inline ParityFigures rounding_of_bf16(const std::string& model, std::size_t steps)
{
    const ParityRecord& wide = one_rank(model, at::kFloat);
    const ParityRecord& narrow = one_rank(model, at::kBFloat16);
    ParityRecord first;
    first.losses.assign(narrow.losses.begin(), narrow.losses.begin() + static_cast<std::ptrdiff_t>(steps));
    first.norms.assign(narrow.norms.begin(), narrow.norms.begin() + static_cast<std::ptrdiff_t>(steps));
    first.gradients = narrow.gradients;
    return largest_differences(first, wide);
}

/// All within what rounding may do, copies equal to the bit. @return the differences
inline ParityFigures expect_rounding_of_bf16(const ParityRecord& got, const ParityRecord& expected,
                                             const std::string& model)
{
    const ParityFigures figures = largest_differences(got, expected);
    const ParityFigures rounding = rounding_of_bf16(model, got.losses.size());
    EXPECT_LE(figures.loss, 3 * rounding.loss);
    EXPECT_LE(figures.norm, 3 * rounding.norm);
    EXPECT_LE(figures.gradient, 2 * rounding.gradient);
    expect_equal_copies(got);
    return figures;
}

/// To the bit, that is, of one rank with the same micro-batch.
inline bool has_activations_of_one_rank(const ParallelLayout& layout) { return layout.tp == 1 && layout.world() > 1; }

/// A row's run beside one rank, which takes the row's micro-batch where that makes the activations equal.
inline ParityFigures expect_bf16_parity(const ParityRecord& got, const LayoutRow& row, const ParallelLayout& layout)
{
    const std::int64_t micro_batch = has_activations_of_one_rank(layout) ? layout.micro_batch : table_batch;
    const ParityRecord& expected = one_rank(row.model, at::kBFloat16, micro_batch);
    const ParityFigures figures = expect_rounding_of_bf16(got, expected, row.model);
    if (has_activations_of_one_rank(layout))
    {
        EXPECT_LE(relative_difference(got.losses.front(), expected.losses.front()), 1e-11) << "loss of the first step";
        EXPECT_LE(figures.gradient, 5e-6);
    }
    if (row.bf16 == Bf16Claim::bits)
    {
        EXPECT_EQ(got.losses, expected.losses);
        EXPECT_LE(figures.norm, 1e-14) << "squares are added in fp64, by stage and shard";
        // A rank of its own process has its parts only.
        if (!got.gradients.empty()) { expect_equal_tensors(got.gradients, expected.gradients); }
        if (!got.weights.empty()) { expect_equal_tensors(got.weights, expected.weights); }
    }
    return figures;
}

}  // namespace plimsoll::test
