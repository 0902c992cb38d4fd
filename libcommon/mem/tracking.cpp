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
        case MemoryTag::communication: return "communication";
        case MemoryTag::transient: return "transient";
    }
    return "other";
}

std::int64_t MemoryTracker::add(MemoryTag tag, std::int64_t bytes)
{
    const std::int64_t addition = additions_.fetch_add(1, std::memory_order_relaxed) + 1;
    const std::int64_t tagged = by_tag_[index(tag)].fetch_add(bytes, std::memory_order_relaxed) + bytes;
    raise_to(peak_by_tag_[index(tag)], tagged);
    const std::int64_t total = current_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    if (total > peak_.load(std::memory_order_relaxed)) { note_peak(total, addition); }
    return addition;
}

void MemoryTracker::note_peak(std::int64_t total, std::int64_t addition)
{
    const std::lock_guard<std::mutex> lock(mutex_);
    if (total <= peak_.load(std::memory_order_relaxed)) { return; }
    raise_to(peak_, total);
    for (std::size_t i = 0; i < by_tag_.size(); ++i) { at_peak_[i] = by_tag_[i].load(std::memory_order_relaxed); }
    peak_addition_ = addition;
}

void MemoryTracker::retag(MemoryTag from, MemoryTag to, std::int64_t bytes, std::int64_t addition)
{
    if (from == to) { return; }
    by_tag_[index(from)].fetch_sub(bytes, std::memory_order_relaxed);
    raise_to(peak_by_tag_[index(to)], by_tag_[index(to)].fetch_add(bytes, std::memory_order_relaxed) + bytes);
    const std::lock_guard<std::mutex> lock(mutex_);
    if (addition > peak_addition_) { return; }  // it came after the peak
    at_peak_[index(from)] -= bytes;
    at_peak_[index(to)] += bytes;
}

std::int64_t MemoryTracker::at_peak(MemoryTag tag) const
{
    const std::lock_guard<std::mutex> lock(mutex_);
    return at_peak_[index(tag)];
}

void MemoryTracker::remove(MemoryTag tag, std::int64_t bytes)
{
    current_.fetch_sub(bytes, std::memory_order_relaxed);
    by_tag_[index(tag)].fetch_sub(bytes, std::memory_order_relaxed);
}

void MemoryTracker::reset_peak()
{
    const std::lock_guard<std::mutex> lock(mutex_);
    peak_.store(current(), std::memory_order_relaxed);
    peak_addition_ = additions_.load(std::memory_order_relaxed);
    for (std::size_t i = 0; i < by_tag_.size(); ++i)
    {
        at_peak_[i] = by_tag_[i].load(std::memory_order_relaxed);
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
