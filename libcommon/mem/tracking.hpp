#pragma once
/// Bytes in use, current and peak, per tag: who holds the memory of this process.
///
/// Thread-safe: any thread may add and remove; a block is attributed to the tag that was in force where it was allocated,
/// whichever thread frees it. Counts what was asked for, not what the allocator or the kernel rounds it to.

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
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
    activations,   ///< saved for backward
    loss,          ///< embedding output, last norm, logits chunk
    data,
    communication, ///< messages between stages
    transient,     ///< inside an operation
};
constexpr int num_memory_tags = 9;
std::string_view memory_tag_name(MemoryTag tag);

/// Current and peak bytes of one process.
class MemoryTracker
{
  public:
    /// Returns the number of this addition, for retag().
    std::int64_t add(MemoryTag tag, std::int64_t bytes);
    void remove(MemoryTag tag, std::int64_t bytes);
    /// The block that `addition` brought, still in use, belongs to another tag: also in what at_peak() says of it.
    void retag(MemoryTag from, MemoryTag to, std::int64_t bytes, std::int64_t addition);

    std::int64_t current() const { return current_.load(std::memory_order_relaxed); }
    /// Highest total since the last reset_peak().
    std::int64_t peak() const { return peak_.load(std::memory_order_relaxed); }
    std::int64_t current(MemoryTag tag) const { return by_tag_[index(tag)].load(std::memory_order_relaxed); }
    /// Highest of one tag alone; peaks of tags need not coincide.
    std::int64_t peak(MemoryTag tag) const { return peak_by_tag_[index(tag)].load(std::memory_order_relaxed); }
    /// Of one tag at the moment of peak(): together they are the peak. Not exact while several threads allocate at once.
    std::int64_t at_peak(MemoryTag tag) const;
    void reset_peak();

  private:
    void note_peak(std::int64_t total, std::int64_t addition);
    static std::size_t index(MemoryTag tag) { return static_cast<std::size_t>(tag); }

    std::atomic<std::int64_t> current_{0};
    std::atomic<std::int64_t> peak_{0};
    std::array<std::atomic<std::int64_t>, num_memory_tags> by_tag_{};
    std::array<std::atomic<std::int64_t>, num_memory_tags> peak_by_tag_{};
    std::atomic<std::int64_t> additions_{0};

    mutable std::mutex mutex_;  // of what follows
    std::array<std::int64_t, num_memory_tags> at_peak_{};
    std::int64_t peak_addition_ = 0;
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
