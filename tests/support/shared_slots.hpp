#pragma once
/// Slots of ranks in memory that a forked child shares.

#include <sys/mman.h>

#include <new>
#include <stdexcept>
#include <vector>

#include "comm/rank_activity.hpp"

namespace plimsoll::testing
{

class SharedSlots
{
  public:
    explicit SharedSlots(std::size_t num) : bytes_(num * sizeof(RankSlot))
    {
        memory_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (memory_ == MAP_FAILED) { throw std::runtime_error("no shared memory"); }
        for (std::size_t i = 0; i < num; ++i) { slots_.push_back(new (static_cast<RankSlot*>(memory_) + i) RankSlot); }
    }
    ~SharedSlots() { ::munmap(memory_, bytes_); }
    SharedSlots(const SharedSlots&) = delete;
    SharedSlots& operator=(const SharedSlots&) = delete;

    const std::vector<RankSlot*>& pointers() const { return slots_; }

  private:
    std::size_t bytes_;
    void* memory_ = nullptr;
    std::vector<RankSlot*> slots_;
};

}  // namespace plimsoll::testing
