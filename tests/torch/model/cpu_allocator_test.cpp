#include "nn/cpu_allocator.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "base/error.hpp"

using namespace plimsoll;
using namespace plimsoll::nn;

TEST(CpuAllocator, CountsTensorsUnderTheTagInForce)
{
    MemoryTracker& tracker = install_cpu_allocator();
    const std::int64_t before = tracker.current(MemoryTag::loss);
    {
        const ScopedMemoryTag tag(MemoryTag::loss);
        const at::Tensor logits = at::empty({1000, 3});
        EXPECT_EQ(tracker.current(MemoryTag::loss) - before, 12000);
    }
    EXPECT_EQ(tracker.current(MemoryTag::loss), before);
}

TEST(CpuAllocator, ReusesLargeBlocksOfTheSameSize)
{
    install_cpu_allocator();
    const at::Tensor held = at::empty({8 << 20});  // so that what is kept stays below the peak
    void* first = nullptr;
    {
        const at::Tensor once = at::empty({1 << 20});
        first = once.data_ptr();
    }
    const at::Tensor again = at::empty({1 << 20});
    EXPECT_EQ(again.data_ptr(), first);
}

TEST(CpuAllocator, KeepsAlignmentForVectorInstructions)
{
    install_cpu_allocator();
    for (const std::int64_t elements : {1, 7, 1000, 300000, 3000000})
    {
        const at::Tensor tensor = at::empty({elements});
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(tensor.data_ptr()) % 64, 0U);
    }
}

TEST(CpuAllocator, SaysWhatCouldNotBeAllocated)
{
    install_cpu_allocator();
    const ScopedMemoryTag tag(MemoryTag::activations);
    try
    {
        const at::Tensor impossible = at::empty({std::int64_t{1} << 46}, at::TensorOptions().dtype(at::kByte));
        FAIL() << "64 TiB were allocated";
    }
    catch (const OutOfMemory& error)
    {
        EXPECT_NE(std::string(error.what()).find("for 'activations'"), std::string::npos) << error.what();
    }
}
