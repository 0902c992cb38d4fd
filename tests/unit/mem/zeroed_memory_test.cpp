#include "mem/zeroed_memory.hpp"

#include <gtest/gtest.h>

#include <cstdint>

#include "base/error.hpp"

using namespace plimsoll;

TEST(ZeroedMemory, HoldsNothingWhenEmpty)
{
    MemoryTracker tracker;
    const ZeroedMemory none(0, MemoryTag::gradients, tracker, "gradients");
    EXPECT_EQ(none.data(), nullptr);
    EXPECT_EQ(tracker.current(), 0);
}

TEST(ZeroedMemory, IsZeroAndCountedForItsLifetime)
{
    MemoryTracker tracker;
    {
        ZeroedMemory memory(10000, MemoryTag::gradients, tracker, "gradients");
        EXPECT_EQ(tracker.current(MemoryTag::gradients), 10000);
        const auto* bytes = static_cast<const unsigned char*>(memory.data());
        for (int i = 0; i < 10000; ++i) { ASSERT_EQ(bytes[i], 0); }
        const ZeroedMemory moved = std::move(memory);
        EXPECT_EQ(memory.data(), nullptr);
        EXPECT_EQ(moved.bytes(), 10000);
        EXPECT_EQ(tracker.current(), 10000);
    }
    EXPECT_EQ(tracker.current(), 0);
}

TEST(ZeroedMemory, NamesWhatCouldNotBeAllocated)
{
    MemoryTracker tracker;
    try
    {
        const ZeroedMemory huge(std::int64_t{1} << 60, MemoryTag::optimizer, tracker, "moments");
        FAIL() << "an exbibyte was mapped";
    }
    catch (const OutOfMemory& error)
    {
        EXPECT_NE(std::string(error.what()).find("cannot allocate 1073741824.00 GiB for 'moments'"), std::string::npos)
            << error.what();
    }
    EXPECT_EQ(tracker.current(), 0);
}
