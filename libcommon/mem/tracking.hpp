#pragma once
/// Bytes in use, current and peak, per tag: who holds the memory of this process.
///
/// Thread-safe: any thread may add and remove; a block is attributed to the tag that was in force where it was allocated,
/// whichever thread frees it. Counts what was asked for, not what the allocator or the kernel rounds it to.

#include <array>
#include <atomic>
#include <cstdint>
#include <string_view>

namespace plimsoll
{

/// Categories of the memory table. Persistent names (metrics): see memory_tag_name().
enum class MemoryTag : std::uint8_t
{
    other = 0,   ///< not attributed
    parameters,
    gradients,
    optimizer,
    activations, ///< saved for backward, and temporaries of operations
    loss,        ///< logits chunk
    data,
};
constexpr int num_memory_tags = 7;
std::string_view memory_tag_name(MemoryTag tag);

/// Current and peak bytes of one process.
class MemoryTracker
{
  public:
    void add(MemoryTag tag, std::int64_t bytes);
    void remove(MemoryTag tag, std::int64_t bytes);

    std::int64_t current() const { return current_.load(std::memory_order_relaxed); }
    /// Highest total since the last reset_peak().
    std::int64_t peak() const { return peak_.load(std::memory_order_relaxed); }
    std::int64_t current(MemoryTag tag) const { return by_tag_[index(tag)].load(std::memory_order_relaxed); }
    /// Highest of one tag alone; peaks of tags need not coincide.
    std::int64_t peak(MemoryTag tag) const { return peak_by_tag_[index(tag)].load(std::memory_order_relaxed); }
    void reset_peak();

  private:
    static std::size_t index(MemoryTag tag) { return static_cast<std::size_t>(tag); }

    std::atomic<std::int64_t> current_{0};
    std::atomic<std::int64_t> peak_{0};
    std::array<std::atomic<std::int64_t>, num_memory_tags> by_tag_{};
    std::array<std::atomic<std::int64_t>, num_memory_tags> peak_by_tag_{};
};

/// The tag in force on this thread.
MemoryTag current_memory_tag();

/// Sets the tag of this thread for a scope.
class ScopedMemoryTag
{
  public:
    explicit ScopedMemoryTag(MemoryTag tag);
    ~ScopedMemoryTag();
    ScopedMemoryTag(const ScopedMemoryTag&) = delete;
    ScopedMemoryTag& operator=(const ScopedMemoryTag&) = delete;

  private:
    MemoryTag outer_;
};

/// Peak resident set of this process so far, from the kernel.
std::int64_t peak_rss_bytes();

}  // namespace plimsoll
