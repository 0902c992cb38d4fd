#include "mem/tracking.hpp"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

using namespace plimsoll;

TEST(MemoryTracker, StartsEmpty)
{
    MemoryTracker tracker;
    EXPECT_EQ(tracker.current(), 0);
    EXPECT_EQ(tracker.peak(), 0);
}

TEST(MemoryTracker, KeepsThePeakOfTheSumAndOfEachTag)
{
    MemoryTracker tracker;
    tracker.add(MemoryTag::parameters, 100);
    tracker.add(MemoryTag::activations, 50);
    tracker.remove(MemoryTag::activations, 50);
    tracker.add(MemoryTag::gradients, 20);
    EXPECT_EQ(tracker.current(), 120);
    EXPECT_EQ(tracker.peak(), 150);
    EXPECT_EQ(tracker.current(MemoryTag::activations), 0);
    EXPECT_EQ(tracker.peak(MemoryTag::activations), 50);
    EXPECT_EQ(tracker.peak(MemoryTag::gradients), 20);
}

TEST(MemoryTracker, ResetsThePeakToWhatIsHeld)
{
    MemoryTracker tracker;
    tracker.add(MemoryTag::other, 10);
    tracker.add(MemoryTag::loss, 90);
    tracker.remove(MemoryTag::loss, 90);
    tracker.reset_peak();
    EXPECT_EQ(tracker.peak(), 10);
    EXPECT_EQ(tracker.peak(MemoryTag::loss), 0);
}

TEST(MemoryTracker, CountsFromManyThreads)
{
    MemoryTracker tracker;
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
    {
        threads.emplace_back(
            [&]
            {
                for (int i = 0; i < 10000; ++i)
                {
                    tracker.add(MemoryTag::other, 3);
                    tracker.remove(MemoryTag::other, 3);
                }
            });
    }
    for (std::thread& thread : threads) { thread.join(); }
    EXPECT_EQ(tracker.current(), 0);
    EXPECT_GE(tracker.peak(), 3);
    EXPECT_LE(tracker.peak(), 12);
}

TEST(ScopedMemoryTag, NestsAndBelongsToTheThread)
{
    EXPECT_EQ(current_memory_tag(), MemoryTag::other);
    {
        const ScopedMemoryTag outer(MemoryTag::parameters);
        {
            const ScopedMemoryTag inner(MemoryTag::loss);
            EXPECT_EQ(current_memory_tag(), MemoryTag::loss);
            MemoryTag seen = MemoryTag::loss;
            std::thread([&] { seen = current_memory_tag(); }).join();
            EXPECT_EQ(seen, MemoryTag::other);
        }
        EXPECT_EQ(current_memory_tag(), MemoryTag::parameters);
    }
    EXPECT_EQ(current_memory_tag(), MemoryTag::other);
}

TEST(MemoryTag, NamesAreDistinct)
{
    for (int a = 0; a < num_memory_tags; ++a)
    {
        for (int b = 0; b < a; ++b)
        {
            EXPECT_NE(memory_tag_name(static_cast<MemoryTag>(a)), memory_tag_name(static_cast<MemoryTag>(b)));
        }
    }
}

TEST(MemoryTracker, TagsAtThePeakAddUpToIt)
{
    MemoryTracker tracker;
    tracker.add(MemoryTag::parameters, 100);
    tracker.add(MemoryTag::transient, 50);
    tracker.remove(MemoryTag::transient, 50);
    tracker.add(MemoryTag::loss, 20);
    EXPECT_EQ(tracker.peak(), 150);
    EXPECT_EQ(tracker.at_peak(MemoryTag::parameters), 100);
    EXPECT_EQ(tracker.at_peak(MemoryTag::transient), 50);
    EXPECT_EQ(tracker.at_peak(MemoryTag::loss), 0);
    tracker.reset_peak();
    EXPECT_EQ(tracker.at_peak(MemoryTag::transient), 0);
    EXPECT_EQ(tracker.at_peak(MemoryTag::loss), 20);
}

TEST(MemoryTracker, ABlockThatGetsItsTagLaterCountsUnderItAtThePeakToo)
{
    MemoryTracker tracker;
    const std::int64_t first = tracker.add(MemoryTag::transient, 30);
    const std::int64_t second = tracker.add(MemoryTag::transient, 5);  // the peak
    tracker.remove(MemoryTag::transient, 5);
    const std::int64_t third = tracker.add(MemoryTag::transient, 4);
    EXPECT_LT(first, second);
    tracker.retag(MemoryTag::transient, MemoryTag::activations, 30, first);
    tracker.retag(MemoryTag::transient, MemoryTag::loss, 4, third);  // not there at the peak
    EXPECT_EQ(tracker.current(MemoryTag::activations), 30);
    EXPECT_EQ(tracker.current(MemoryTag::loss), 4);
    EXPECT_EQ(tracker.current(MemoryTag::transient), 0);
    EXPECT_EQ(tracker.at_peak(MemoryTag::activations), 30);
    EXPECT_EQ(tracker.at_peak(MemoryTag::transient), 5);
    EXPECT_EQ(tracker.at_peak(MemoryTag::loss), 0);
    EXPECT_EQ(tracker.peak(), 35);
}
