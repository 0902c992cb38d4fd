#include "mem/tracking.hpp"

#include <sys/resource.h>

namespace plimsoll
{
namespace
{

thread_local MemoryTag thread_tag = MemoryTag::other;

void raise_to(std::atomic<std::int64_t>& peak, std::int64_t value)
{
    std::int64_t seen = peak.load(std::memory_order_relaxed);
    while (value > seen && !peak.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {}
}

}  // namespace

std::string_view memory_tag_name(MemoryTag tag)
{
    switch (tag)
    {
        case MemoryTag::other: return "other";
        case MemoryTag::parameters: return "parameters";
        case MemoryTag::gradients: return "gradients";
        case MemoryTag::optimizer: return "optimizer";
        case MemoryTag::activations: return "activations";
        case MemoryTag::loss: return "loss";
        case MemoryTag::data: return "data";
    }
    return "other";
}

void MemoryTracker::add(MemoryTag tag, std::int64_t bytes)
{
    const std::int64_t total = current_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    raise_to(peak_, total);
    const std::int64_t tagged = by_tag_[index(tag)].fetch_add(bytes, std::memory_order_relaxed) + bytes;
    raise_to(peak_by_tag_[index(tag)], tagged);
}

void MemoryTracker::remove(MemoryTag tag, std::int64_t bytes)
{
    current_.fetch_sub(bytes, std::memory_order_relaxed);
    by_tag_[index(tag)].fetch_sub(bytes, std::memory_order_relaxed);
}

void MemoryTracker::reset_peak()
{
    peak_.store(current(), std::memory_order_relaxed);
    for (std::size_t i = 0; i < by_tag_.size(); ++i)
    {
        peak_by_tag_[i].store(by_tag_[i].load(std::memory_order_relaxed), std::memory_order_relaxed);
    }
}

MemoryTag current_memory_tag() { return thread_tag; }

ScopedMemoryTag::ScopedMemoryTag(MemoryTag tag) : outer_(thread_tag) { thread_tag = tag; }
ScopedMemoryTag::~ScopedMemoryTag() { thread_tag = outer_; }

std::int64_t peak_rss_bytes()
{
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return static_cast<std::int64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace plimsoll
