#pragma once
/// Zero-filled memory straight from the kernel: pages appear when they are first touched, in large pages where the system has them.

#include <cstdint>

#include "mem/tracking.hpp"

namespace plimsoll
{

/// Owns one anonymous mapping and counts it under a tag of a tracker for its lifetime. Page-aligned. Movable.
class ZeroedMemory
{
  public:
    ZeroedMemory() = default;
    /// @throws OutOfMemory naming `what`, the request and what is in use.
    ZeroedMemory(std::int64_t bytes, MemoryTag tag, MemoryTracker& tracker, const char* what);
    ~ZeroedMemory();
    ZeroedMemory(ZeroedMemory&& other) noexcept;
    ZeroedMemory& operator=(ZeroedMemory&& other) noexcept;
    ZeroedMemory(const ZeroedMemory&) = delete;
    ZeroedMemory& operator=(const ZeroedMemory&) = delete;

    void* data() const { return data_; }
    std::int64_t bytes() const { return bytes_; }

  private:
    void* data_ = nullptr;
    std::int64_t bytes_ = 0;
    MemoryTag tag_ = MemoryTag::other;
    MemoryTracker* tracker_ = nullptr;
};

}  // namespace plimsoll
