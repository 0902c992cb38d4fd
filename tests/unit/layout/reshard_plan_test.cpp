#include "layout/reshard_plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "base/error.hpp"
#include "support/expect_error.hpp"

namespace plimsoll
{
namespace
{

using Shape = std::vector<std::int64_t>;

Box box_at(Shape offset, Shape shape)
{
    Box box;
    box.offset = std::move(offset);
    box.shape = std::move(shape);
    return box;
}

ReshardTensor tensor_of(Shape shape, std::int64_t element_bytes = 4, std::string name = "model/w")
{
    ReshardTensor tensor;
    tensor.name = std::move(name);
    tensor.shape = std::move(shape);
    tensor.element_bytes = element_bytes;
    return tensor;
}

std::vector<ReshardBox> boxes_of_tensor(const std::vector<Box>& boxes, std::size_t tensor = 0)
{
    std::vector<ReshardBox> list;
    for (std::size_t k = 0; k < boxes.size(); ++k)
    {
        ReshardBox entry;
        entry.tensor = tensor;
        entry.file = static_cast<std::int64_t>(k);
        entry.box = boxes[k];
        list.push_back(entry);
    }
    return list;
}

/// A tensor cut in `parts` along `dim`, unevenly when it does not divide; parts may be empty.
std::vector<Box> cut(const Shape& shape, std::size_t dim, std::int64_t parts)
{
    std::vector<Box> boxes;
    for (std::int64_t k = 0; k < parts; ++k)
    {
        Box box = box_at(Shape(shape.size(), 0), shape);
        box.offset[dim] = k * shape[dim] / parts;
        box.shape[dim] = (k + 1) * shape[dim] / parts - box.offset[dim];
        boxes.push_back(box);
    }
    return boxes;
}

/// A cut as ZeRO makes it: equal runs of the flat tensor, each as boxes.
std::vector<Box> flat_cut(const Shape& shape, std::int64_t parts)
{
    const std::int64_t elements = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
    std::vector<Box> boxes;
    for (std::int64_t k = 0; k < parts; ++k)
    {
        for (const Box& box : boxes_of_flat_range(shape, k * elements / parts, (k + 1) * elements / parts)) { boxes.push_back(box); }
    }
    return boxes;
}

TEST(ReshardPlan, WorkedExample)
{
    const ReshardPlan plan({tensor_of({4, 6})}, boxes_of_tensor(cut({4, 6}, 1, 2)), boxes_of_tensor(cut({4, 6}, 0, 2)));
    plan.prove_coverage();
    ASSERT_EQ(plan.copies().size(), 4U);
    EXPECT_EQ(plan.copies()[0].common, box_at({0, 0}, {2, 3}));
    EXPECT_EQ(plan.copies()[1].common, box_at({0, 3}, {2, 3}));
    EXPECT_EQ(plan.copies()[3].common, box_at({2, 3}, {2, 3}));
    EXPECT_EQ(plan.copies()[3].source, 1U);
    EXPECT_EQ(plan.copies()[3].target, 1U);
    EXPECT_EQ(plan.copies_of(1), (std::pair<std::size_t, std::size_t>{2, 4}));
    EXPECT_EQ(plan.total_bytes(), 96);
    EXPECT_EQ(plan.target_file_bytes(), (std::vector<std::int64_t>{48, 48}));
}

TEST(ReshardPlan, NothingScalarsAndEmptyBoxes)
{
    const ReshardPlan none({}, {}, {});
    none.prove_coverage();
    EXPECT_TRUE(none.copies().empty());
    const ReshardPlan plan({tensor_of({}), tensor_of({0, 5}), tensor_of({3})},
                           {{0, 0, box_at({}, {})}, {1, 0, box_at({0, 0}, {0, 5})}, {2, 0, box_at({0}, {3})}, {2, 1, box_at({3}, {0})}},
                           {{2, 0, box_at({0}, {0})}, {2, 1, box_at({0}, {3})}, {0, 1, box_at({}, {})}});
    plan.prove_coverage();
    ASSERT_EQ(plan.copies().size(), 2U);
    EXPECT_EQ(plan.copies_of(0).first, plan.copies_of(0).second);
    EXPECT_EQ(plan.copies()[0].source, 2U);
    EXPECT_EQ(plan.copies()[1].source, 0U);
}

TEST(ReshardPlan, CoverageFaultsOfEitherSideAreNamed)
{
    const std::vector<Box> whole = {box_at({0}, {8})};
    const std::vector<Box> gap = {box_at({0}, {3}), box_at({4}, {4})};
    const std::vector<Box> overlap = {box_at({0}, {5}), box_at({4}, {4})};
    const auto prove = [](const std::vector<Box>& sources, const std::vector<Box>& targets)
    { ReshardPlan({tensor_of({8})}, boxes_of_tensor(sources), boxes_of_tensor(targets)).prove_coverage(); };
    EXPECT_THROW(prove(gap, whole), FormatError);
    EXPECT_THROW(prove(overlap, whole), FormatError);
    EXPECT_THROW(prove(whole, gap), InternalError);
    EXPECT_THROW(prove(whole, overlap), InternalError);
    try
    {
        prove(gap, whole);
    }
    catch (const FormatError& error)
    {
        EXPECT_STREQ(error.what(), "model/w: 1 of 8 elements are in no box");
    }
}

/// All ways to cut a shape that the tests try.
std::vector<std::vector<Box>> cuts_of(const Shape& shape)
{
    std::vector<std::vector<Box>> cuts;
    for (std::size_t dim = 0; dim < shape.size(); ++dim)
    {
        for (const std::int64_t parts : {1, 2, 3, 5}) { cuts.push_back(cut(shape, dim, parts)); }
    }
    for (const std::int64_t parts : {2, 3, 7}) { cuts.push_back(flat_cut(shape, parts)); }
    return cuts;
}

TEST(ReshardPlan, EveryElementHasOneSourceAndOneTarget)
{
    for (const Shape& shape : {Shape{1}, Shape{7}, Shape{1, 1}, Shape{5, 3}, Shape{3, 4, 5}, Shape{2, 1, 3, 4}})
    {
        for (const auto& sources : cuts_of(shape))
        {
            for (const auto& targets : cuts_of(shape))
            {
                const ReshardPlan plan({tensor_of(shape)}, boxes_of_tensor(sources), boxes_of_tensor(targets));
                plan.prove_coverage();
                std::int64_t elements = 0;
                for (const ReshardCopy& copy : plan.copies()) { elements += copy.common.num_elements(); }
                ASSERT_EQ(elements * 4, plan.total_bytes());
            }
        }
    }
}

// Blocks that runs of the two boxes really touch, element by element.
TEST(ReshardSchedule, SourceBlocksAreExactlyThoseThatAreTouched)
{
    std::mt19937 random(3);
    const auto pick = [&random](std::int64_t low, std::int64_t high)
    { return std::uniform_int_distribution<std::int64_t>(low, high)(random); };
    for (int round = 0; round < 3000; ++round)
    {
        Box source, common;
        const std::int64_t num_dims = pick(0, 4);
        for (std::int64_t d = 0; d < num_dims; ++d)
        {
            source.offset.push_back(pick(0, 3));
            source.shape.push_back(pick(1, 6));
            const std::int64_t begin = pick(0, source.shape.back() - 1);
            common.offset.push_back(source.offset.back() + begin);
            common.shape.push_back(pick(1, source.shape.back() - begin));
        }
        const std::int64_t block_elements = pick(1, 20);
        std::vector<std::int64_t> wanted, found;
        BoxRuns runs(source, common);
        ElementRun run;
        while (runs.next(run))
        {
            for (std::int64_t k = 0; k < run.count; ++k)
            {
                const std::int64_t block = (run.source + k) / block_elements;
                if (wanted.empty() || wanted.back() != block) { wanted.push_back(block); }
            }
        }
        for_each_source_block(source, common, 4, 4 * block_elements, [&](std::int64_t block) { found.push_back(block); });
        ASSERT_EQ(found, wanted) << box_text(source) << " " << box_text(common) << " " << block_elements;
    }
}

constexpr std::int64_t page = 4096;  // a block of any smaller size takes a page of the cache

/// Does what a rank would: loads blocks as the schedule says, and nothing else; counts how often each target element is
/// written.
struct Replay
{
    const ReshardPlan& plan;
    ReshardLimits limits;
    std::vector<std::vector<int>> written = std::vector<std::vector<int>>(plan.targets().size());
    std::int64_t bytes_read = 0;

    Replay(const ReshardPlan& of, const ReshardLimits& with) : plan(of), limits(with)
    {
        for (std::size_t k = 0; k < written.size(); ++k)
        {
            written[k].resize(static_cast<std::size_t>(plan.targets()[k].box.num_elements()));
        }
    }

    void run(std::int64_t rank)
    {
        const ReshardSchedule schedule(plan, limits, rank);
        std::set<std::pair<std::uint32_t, std::uint32_t>> held;
        std::size_t next = 0;
        for (const ReshardUnit& unit : schedule.units())
        {
            schedule.for_each_piece(unit, [&](const ReshardPiece& piece) { copy(schedule, unit, piece, held, next); });
        }
        ASSERT_EQ(next, schedule.uses().size());
        bytes_read += schedule.bytes_read();
        EXPECT_LE(schedule.peak_cache_bytes(), limits.cache_bytes);
    }

    void copy(const ReshardSchedule& schedule, const ReshardUnit& unit, const ReshardPiece& piece,
              std::set<std::pair<std::uint32_t, std::uint32_t>>& held, std::size_t& next)
    {
        const std::int64_t block_elements = limits.block_bytes / 4;
        BoxRuns runs(plan.sources()[piece.source].box, piece.part);
        ElementRun run;
        std::int64_t block = -1;
        while (runs.next(run))
        {
            for (std::int64_t k = 0; k < run.count; ++k)
            {
                if ((run.source + k) / block_elements != block)
                {
                    block = (run.source + k) / block_elements;
                    touch(schedule, piece.source, block, held, next);
                }
                const std::int64_t element = unit.block * block_elements + piece.offset + run.target + k;
                ++written[unit.target].at(static_cast<std::size_t>(element));
            }
        }
    }

    void touch(const ReshardSchedule& schedule, std::size_t source, std::int64_t block,
               std::set<std::pair<std::uint32_t, std::uint32_t>>& held, std::size_t& next)
    {
        ASSERT_LT(next, schedule.uses().size());
        const ReshardSchedule::Use& use = schedule.uses()[next++];
        ASSERT_EQ(use.source, source);
        ASSERT_EQ(use.block, block);
        if (use.load)
        {
            for (const std::size_t left : use.leaves)
            {
                ASSERT_EQ(held.erase({schedule.uses()[left].source, schedule.uses()[left].block}), 1U);
            }
            ASSERT_TRUE(held.insert({use.source, use.block}).second) << "read although it is in memory";
        }
        ASSERT_EQ(held.count({use.source, use.block}), 1U) << "used and not in memory";
        ASSERT_LE(static_cast<std::int64_t>(held.size()) * page, limits.cache_bytes);
    }
};

TEST(ReshardSchedule, EveryElementIsWrittenOnceByAnyNumberOfRanksInAnyMemory)
{
    for (const Shape& shape : {Shape{1}, Shape{37}, Shape{12, 10}, Shape{4, 5, 6}})
    {
        for (const auto& sources : cuts_of(shape))
        {
            for (const auto& targets : cuts_of(shape))
            {
                const ReshardPlan plan({tensor_of(shape)}, boxes_of_tensor(sources), boxes_of_tensor(targets));
                for (const std::int64_t num_ranks : {1, 3})
                {
                    for (const std::int64_t blocks : {1, 4})
                    {
                        Replay replay(plan, {32, blocks * page, num_ranks});
                        for (std::int64_t rank = 0; rank < num_ranks; ++rank) { replay.run(rank); }
                        for (const std::vector<int>& target : replay.written)
                        {
                            ASSERT_TRUE(std::all_of(target.begin(), target.end(), [](int count) { return count == 1; }));
                        }
                        ASSERT_GE(replay.bytes_read, plan.total_bytes());
                    }
                }
            }
        }
    }
}

// Column-parallel to row-parallel is the hard case: four target boxes share each source block.
TEST(ReshardSchedule, EachByteIsReadOnceWhenTheBlocksThatTargetsShareFit)
{
    const Shape shape = {256, 64};
    const ReshardPlan to_columns({tensor_of(shape)}, boxes_of_tensor(cut(shape, 0, 4)), boxes_of_tensor(cut(shape, 1, 4)));
    const ReshardPlan to_rows({tensor_of(shape)}, boxes_of_tensor(cut(shape, 1, 4)), boxes_of_tensor(cut(shape, 0, 4)));
    for (const ReshardPlan* plan : {&to_columns, &to_rows})
    {
        const auto read = [&](std::int64_t blocks) { return ReshardSchedule(*plan, {1024, blocks * page, 1}, 0).bytes_read(); };
        EXPECT_EQ(read(5), plan->total_bytes());
        EXPECT_EQ(read(100), plan->total_bytes());
        EXPECT_GT(read(1), plan->total_bytes());
        EXPECT_LE(read(1), 4 * plan->total_bytes());
    }
}

TEST(ReshardSchedule, RanksShareTheBytesEvenly)
{
    std::vector<ReshardTensor> tensors;
    std::vector<ReshardBox> boxes;
    for (std::size_t k = 0; k < 40; ++k)
    {
        const Shape shape = {100 + static_cast<std::int64_t>(k), 16};
        tensors.push_back(tensor_of(shape));
        for (const ReshardBox& box : boxes_of_tensor(cut(shape, 0, 2), k)) { boxes.push_back(box); }
    }
    const ReshardPlan plan(tensors, boxes, boxes);
    std::int64_t total = 0;
    for (std::int64_t rank = 0; rank < 7; ++rank)
    {
        const ReshardSchedule schedule(plan, {1024, 8 * page, 7}, rank);
        EXPECT_NEAR(static_cast<double>(schedule.bytes_written()), static_cast<double>(plan.total_bytes()) / 7, 1024.0);
        total += schedule.bytes_written();
    }
    EXPECT_EQ(total, plan.total_bytes());
}

// 10^5 boxes, as a large run has them (many tensors), and all of one tensor, in a row and as a grid.
TEST(ReshardPlan, AHundredThousandBoxes)
{
    std::vector<ReshardTensor> tensors;
    std::vector<ReshardBox> sources, targets;
    for (std::size_t k = 0; k < 1000; ++k)
    {
        tensors.push_back(tensor_of({1000, 64}));
        for (const ReshardBox& box : boxes_of_tensor(flat_cut({1000, 64}, 30), k)) { sources.push_back(box); }
        for (const ReshardBox& box : boxes_of_tensor(cut({1000, 64}, 1, 32), k)) { targets.push_back(box); }
    }
    tensors.push_back(tensor_of({20000, 8}));
    for (const ReshardBox& box : boxes_of_tensor(cut({20000, 8}, 0, 20000), 1000)) { sources.push_back(box); }
    for (const ReshardBox& box : boxes_of_tensor(cut({20000, 8}, 0, 19999), 1000)) { targets.push_back(box); }
    const ReshardPlan plan(tensors, sources, targets);
    EXPECT_GE(plan.sources().size() + plan.targets().size(), 100000U);
    plan.prove_coverage();
    EXPECT_GT(plan.copies().size(), 20000U);
}

}  // namespace
}  // namespace plimsoll
