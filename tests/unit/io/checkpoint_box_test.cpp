#include "io/checkpoint_box.hpp"

#include <gtest/gtest.h>

#include <random>

#include "base/digest.hpp"
#include "base/rng.hpp"
#include "support/synthetic_checkpoint.hpp"

namespace plimsoll::checkpoint
{
namespace
{

using plimsoll::testing::make_box;

std::vector<ElementRun> all_runs(const Box& source, const Box& target)
{
    BoxRuns runs(source, target);
    std::vector<ElementRun> list;
    ElementRun run;
    while (runs.next(run)) { list.push_back(run); }
    return list;
}

TEST(BoxRuns, EmptyAndDisjointBoxesHaveNone)
{
    EXPECT_TRUE(all_runs(make_box({0}, {0}), make_box({0}, {4})).empty());
    EXPECT_TRUE(all_runs(make_box({0, 0}, {2, 4}), make_box({2, 0}, {2, 4})).empty());
    EXPECT_EQ(BoxRuns(make_box({0, 0}, {2, 4}), make_box({1, 4}, {2, 4})).num_elements(), 0);
}

TEST(BoxRuns, ScalarIsOneRunOfOne)
{
    const std::vector<ElementRun> runs = all_runs(make_box({}, {}), make_box({}, {}));
    ASSERT_EQ(runs.size(), 1U);
    EXPECT_EQ(runs[0].count, 1);
}

TEST(BoxRuns, WholeBoxesAreOneRun)
{
    const Box box = make_box({0, 0, 0}, {3, 4, 5});
    const std::vector<ElementRun> runs = all_runs(box, box);
    ASSERT_EQ(runs.size(), 1U);
    EXPECT_EQ(runs[0].count, 60);
}

TEST(BoxRuns, RowsOfAMatrixAreOneRunAndColumnsAreNot)
{
    EXPECT_EQ(all_runs(make_box({0, 0}, {8, 4}), make_box({2, 0}, {3, 4})).size(), 1U);
    const std::vector<ElementRun> columns = all_runs(make_box({0, 0}, {8, 4}), make_box({0, 1}, {8, 2}));
    ASSERT_EQ(columns.size(), 8U);
    EXPECT_EQ(columns[1].source, 5);
    EXPECT_EQ(columns[1].target, 2);
    EXPECT_EQ(columns[1].count, 2);
}

// Every element of random intersecting boxes against index arithmetic by hand.
TEST(BoxRuns, MatchesElementwiseArithmeticOnRandomBoxes)
{
    std::mt19937 random(1);
    const auto pick = [&random](std::int64_t low, std::int64_t high) {
        return std::uniform_int_distribution<std::int64_t>(low, high)(random);
    };
    for (int round = 0; round < 500; ++round)
    {
        const auto num_dims = static_cast<std::size_t>(pick(1, 4));
        Box source, target;
        for (std::size_t d = 0; d < num_dims; ++d)
        {
            source.offset.push_back(pick(0, 3));
            source.shape.push_back(pick(0, 4));
            target.offset.push_back(pick(0, 1) == 0 ? source.offset[d] : pick(0, 3));
            target.shape.push_back(pick(0, 1) == 0 ? source.shape[d] : pick(0, 4));
        }
        std::vector<std::pair<std::int64_t, std::int64_t>> wanted, found;
        const std::int64_t total = source.num_elements();
        for (std::int64_t linear = 0; linear < total; ++linear)
        {
            std::int64_t rest = linear;
            std::int64_t position = 0;
            std::int64_t stride = 1;
            bool inside = true;
            for (std::size_t d = num_dims; d-- > 0;)
            {
                const std::int64_t at = source.offset[d] + rest % source.shape[d] - target.offset[d];
                rest /= source.shape[d];
                inside = inside && at >= 0 && at < target.shape[d];
                position += at * stride;
                stride *= target.shape[d];
            }
            if (inside) { wanted.emplace_back(linear, position); }
        }
        for (const ElementRun& run : all_runs(source, target))
        {
            for (std::int64_t k = 0; k < run.count; ++k) { found.emplace_back(run.source + k, run.target + k); }
        }
        ASSERT_EQ(found, wanted) << box_text(source) << " and " << box_text(target);
        ASSERT_EQ(BoxRuns(source, target).num_elements(), static_cast<std::int64_t>(wanted.size()));
    }
}

TEST(BoxDigest, PartsAddUpToTheWholeInAnyCutAndStep)
{
    const std::vector<std::int64_t> shape = {6, 10};
    std::vector<std::uint32_t> data(60);
    for (std::uint32_t k = 0; k < 60; ++k) { data[k] = k * k + 1; }
    const std::uint64_t whole = element_digest(data.data(), 60, 4, 0, 99);
    for (std::int64_t cut = 0; cut <= 10; ++cut)
    {
        std::uint64_t sum = 0;
        for (const Box& box : {make_box({0, 0}, {6, cut}), make_box({0, cut}, {6, 10 - cut})})
        {
            std::vector<std::uint32_t> part;
            for (std::int64_t row = 0; row < 6; ++row)
            {
                for (std::int64_t column = 0; column < box.shape[1]; ++column)
                {
                    part.push_back(data[static_cast<std::size_t>(row * 10 + box.offset[1] + column)]);
                }
            }
            BoxDigest digest(box, shape, 4, 99);
            for (std::size_t at = 0; at < part.size(); at += 7)
            {
                digest.add(part.data() + at, static_cast<std::int64_t>(std::min<std::size_t>(7, part.size() - at)));
            }
            sum += digest.value();
        }
        EXPECT_EQ(sum, whole) << cut;
    }
}

TEST(Coverage, ExactCoversHaveNoFault)
{
    EXPECT_EQ(coverage_fault({}, {make_box({}, {})}), "");
    EXPECT_EQ(coverage_fault({0, 16}, {make_box({0, 0}, {0, 16})}), "");
    EXPECT_EQ(coverage_fault({0, 16}, {}), "");
    EXPECT_EQ(coverage_fault({4, 4}, {make_box({0, 0}, {4, 1}), make_box({0, 1}, {2, 3}), make_box({2, 1}, {2, 3})}), "");
}

TEST(Coverage, GapsOverlapsAndStrangersAreNamed)
{
    EXPECT_EQ(coverage_fault({}, {}), "1 of 1 elements are in no box");
    EXPECT_EQ(coverage_fault({4, 4}, {make_box({0, 0}, {4, 3})}), "4 of 16 elements are in no box");
    EXPECT_EQ(coverage_fault({4, 4}, {make_box({0, 0}, {3, 4}), make_box({2, 0}, {2, 4})}),
              "boxes [0 3) x [0 4) and [2 4) x [0 4) overlap");
    // As many elements as the tensor has, and still wrong.
    EXPECT_EQ(coverage_fault({4}, {make_box({0}, {2}), make_box({1}, {2})}), "boxes [0 2) and [1 3) overlap");
    EXPECT_EQ(coverage_fault({4}, {make_box({2}, {3})}), "box [2 5) is not inside the shape [4]");
    EXPECT_EQ(coverage_fault({4}, {make_box({-1}, {3})}), "box [-1 2) is not inside the shape [4]");
    EXPECT_EQ(coverage_fault({4}, {make_box({0, 0}, {4, 1})}), "box [0 4) x [0 1) is not inside the shape [4]");
    EXPECT_EQ(coverage_fault({}, {make_box({}, {}), make_box({}, {})}), "boxes scalar and scalar overlap");
}

TEST(Coverage, ManyBoxesOfOneTensorAreQuick)
{
    std::vector<Box> boxes;
    for (std::int64_t row = 0; row < 1000; ++row)
    {
        for (std::int64_t column = 0; column < 8; ++column) { boxes.push_back(make_box({row * 2, column * 3}, {2, 3})); }
    }
    EXPECT_EQ(coverage_fault({2000, 24}, boxes), "");
    boxes.pop_back();
    EXPECT_EQ(coverage_fault({2000, 24}, boxes), "6 of 48000 elements are in no box");
}

}  // namespace
}  // namespace plimsoll::checkpoint
