#include "mem/zeroed_memory.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace plimsoll
{

ZeroedMemory::ZeroedMemory(std::int64_t bytes, MemoryTag tag, MemoryTracker& tracker, const char* what)
    : bytes_(bytes), tag_(tag)
{
    EXPECT(bytes >= 0);
    if (bytes == 0) { return; }
    void* mapped = mmap(nullptr, static_cast<std::size_t>(bytes), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED)
    {
        throw OutOfMemory(fmt::format("cannot allocate {:.2f} GiB for '{}' ({}, {:.2f} GiB in use)",
                                      static_cast<double>(bytes) / (1 << 30), what, std::strerror(errno),
                                      static_cast<double>(tracker.current()) / (1 << 30)));
    }
    madvise(mapped, static_cast<std::size_t>(bytes), MADV_HUGEPAGE);  // a wish: kernels without it still work
    data_ = mapped;
    tracker_ = &tracker;
    tracker_->add(tag_, bytes_);
}

ZeroedMemory::~ZeroedMemory()
{
    if (data_ == nullptr) { return; }
    munmap(data_, static_cast<std::size_t>(bytes_));
    tracker_->remove(tag_, bytes_);
}

ZeroedMemory::ZeroedMemory(ZeroedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)), tag_(other.tag_),
      tracker_(other.tracker_)
{
}

ZeroedMemory& ZeroedMemory::operator=(ZeroedMemory&& other) noexcept
{
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(tag_, other.tag_);
    std::swap(tracker_, other.tracker_);
    return *this;
}

}  // namespace plimsoll
