#include "nn/cpu_allocator.hpp"

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <vector>

#include "base/error.hpp"
#include "base/units.hpp"
#include "engine/recorder.hpp"

namespace plimsoll::nn
{
namespace
{

/// In front of each block; its size keeps the block's alignment.
struct alignas(64) BlockHeader
{
    std::int64_t requested = 0; ///< bytes asked for
    std::int64_t reserved = 0;  ///< bytes behind the header
    MemoryTracker* tracker = nullptr;
    std::int64_t addition = 0;  ///< its number there
    StepRecorder* recorder = nullptr;
    std::int64_t record = 0;    ///< its number there
    MemoryTag tag = MemoryTag::other;
};
static_assert(sizeof(BlockHeader) == 64);

constexpr std::int64_t keep_from = std::int64_t{1} << 20;
constexpr std::int64_t granule = std::int64_t{64} << 10;

std::int64_t round_up(std::int64_t bytes) { return (bytes + granule - 1) / granule * granule; }

/// Null: the process's own.
thread_local MemoryTracker* thread_tracker = nullptr;

class CountingAllocator final : public c10::Allocator
{
  public:
    MemoryTracker& tracker() { return tracker_; }

    MemoryTracker& lend_tracker()
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        // One that still counts blocks of a rank before is left to them.
        const auto free = std::find_if(idle_.begin(), idle_.end(), [](MemoryTracker* idle) { return idle->current() == 0; });
        if (free == idle_.end())
        {
            lent_.emplace_back();
            return lent_.back();
        }
        MemoryTracker& tracker = **free;
        idle_.erase(free);
        return tracker;
    }

    void return_tracker(MemoryTracker& tracker)
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        idle_.push_back(&tracker);
    }

    static void name(const at::Tensor& tensor, const char* name, MemoryUse use)
    {
        if (!tensor.defined() || !tensor.has_storage()) { return; }
        const c10::DataPtr& pointer = tensor.storage().data_ptr();
        if (pointer.get() == nullptr || pointer.get_deleter() != &CountingAllocator::give_back) { return; }
        BlockHeader& block = *(static_cast<BlockHeader*>(pointer.get_context()) - 1);
        const MemoryTag tag = memory_tag_of(use);
        block.tracker->retag(block.tag, tag, block.requested, block.addition);
        block.tag = tag;
        if (block.recorder != nullptr) { block.recorder->named(block.record, name, use); }
    }

    c10::DataPtr allocate(std::size_t bytes) override
    {
        void* data = bytes == 0 ? nullptr : take(static_cast<std::int64_t>(bytes));
        return {data, data, &CountingAllocator::give_back, c10::Device(c10::DeviceType::CPU)};
    }

    c10::DeleterFnPtr raw_deleter() const override { return &CountingAllocator::give_back; }

    void copy_data(void* to, const void* from, std::size_t bytes) const override { std::memcpy(to, from, bytes); }

    void release_kept()
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        for (auto& list : kept_)
        {
            for (BlockHeader* block : list.second) { c10::free_cpu(block); }
        }
        kept_.clear();
        kept_bytes_ = 0;
    }

    static CountingAllocator& instance()
    {
        // Leaked on purpose: tensors with static storage may be freed after any destructor of ours.
        static CountingAllocator* allocator = new CountingAllocator;
        return *allocator;
    }

  private:
    void* take(std::int64_t bytes)
    {
        BlockHeader* block = bytes >= keep_from ? take_kept(round_up(bytes)) : nullptr;
        if (block == nullptr)
        {
            const std::int64_t reserved = bytes >= keep_from ? round_up(bytes) : bytes;
            block = new (reserve(reserved)) BlockHeader;
            block->reserved = reserved;
        }
        block->requested = bytes;
        block->tag = current_memory_tag();
        block->tracker = thread_tracker != nullptr ? thread_tracker : &tracker_;
        block->addition = block->tracker->add(block->tag, bytes);
        block->recorder = thread_recorder();
        if (block->recorder != nullptr) { block->record = block->recorder->allocated(bytes); }
        raise_high_water(in_use_.fetch_add(bytes) + bytes);
        return block + 1;
    }

    void* reserve(std::int64_t reserved)
    {
        const std::size_t total = static_cast<std::size_t>(reserved) + sizeof(BlockHeader);
        try
        {
            return c10::alloc_cpu(total);
        }
        catch (const std::exception&)
        {
            release_kept();
            try
            {
                return c10::alloc_cpu(total);
            }
            catch (const std::exception&)
            {
                throw OutOfMemory(fmt::format("cannot allocate {} for '{}' ({} in use). try a smaller micro-batch",
                                              format_memory(static_cast<double>(reserved)), memory_tag_name(current_memory_tag()),
                                              format_memory(static_cast<double>(in_use_.load()))));
            }
        }
    }

    BlockHeader* take_kept(std::int64_t reserved)
    {
        const std::lock_guard<std::mutex> lock(mutex_);
        // A block up to an eighth too large is better than a new one.
        const auto found = kept_.lower_bound(reserved);
        if (found == kept_.end() || found->first > reserved + reserved / 8) { return nullptr; }
        BlockHeader* block = found->second.back();
        found->second.pop_back();
        if (found->second.empty()) { kept_.erase(found); }
        kept_bytes_ -= block->reserved;
        return block;
    }

    /// Unlike the tracker's peak this is never reset: it bounds what is kept.
    void raise_high_water(std::int64_t bytes)
    {
        std::int64_t seen = high_water_.load();
        while (bytes > seen && !high_water_.compare_exchange_weak(seen, bytes)) {}
    }

    static void give_back(void* data)
    {
        if (data == nullptr) { return; }
        instance().put(static_cast<BlockHeader*>(data) - 1);
    }

    void put(BlockHeader* block)
    {
        block->tracker->remove(block->tag, block->requested);
        if (block->recorder != nullptr) { block->recorder->freed(block->record); }
        const std::int64_t in_use = in_use_.fetch_sub(block->requested) - block->requested;
        if (block->reserved >= keep_from)
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            if (in_use + kept_bytes_ + block->reserved <= high_water_.load() + granule)
            {
                kept_[block->reserved].push_back(block);
                kept_bytes_ += block->reserved;
                return;
            }
        }
        c10::free_cpu(block);
    }

    MemoryTracker tracker_;
    std::atomic<std::int64_t> in_use_{0};  ///< of all ranks
    std::mutex mutex_;                     // of what follows
    std::deque<MemoryTracker> lent_;       ///< never shrinks
    std::vector<MemoryTracker*> idle_;
    std::map<std::int64_t, std::vector<BlockHeader*>> kept_;
    std::int64_t kept_bytes_ = 0;
    std::atomic<std::int64_t> high_water_{0};
};

}  // namespace

MemoryTracker& install_cpu_allocator()
{
    CountingAllocator& allocator = CountingAllocator::instance();
    static std::once_flag once;
    std::call_once(once, [&] { c10::SetCPUAllocator(&allocator, /*priority=*/100); });
    return allocator.tracker();
}

RankMemoryScope::RankMemoryScope()
{
    install_cpu_allocator();
    EXPECT(thread_tracker == nullptr);
    tracker_ = &CountingAllocator::instance().lend_tracker();
    tracker_->reset_peak();
    thread_tracker = tracker_;
}

RankMemoryScope::~RankMemoryScope()
{
    thread_tracker = nullptr;
    CountingAllocator::instance().return_tracker(*tracker_);
}

void name_tensor(const at::Tensor& tensor, const char* name, MemoryUse use)
{
    CountingAllocator::name(tensor, name, use);
}

void release_kept_blocks() { CountingAllocator::instance().release_kept(); }

}  // namespace plimsoll::nn
