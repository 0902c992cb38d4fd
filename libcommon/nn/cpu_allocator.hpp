#pragma once
/// The process-wide CPU allocator of tensors: counts every block by rank and tag and keeps large ones for reuse.
///
/// A block belongs to the rank and the tag in force on the thread that allocates it, whichever thread frees it. Where ranks are
/// threads each opens a RankMemoryScope; what other threads allocate (the pool's, inside kernels) counts for the process.
///
/// Blocks of at least 1 MiB are kept on free lists by rounded size: a training step asks for the same sizes again and again,
/// and pages that stay mapped need no zeroing by the kernel. What is kept never exceeds the peak of what was in use.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "mem/tracking.hpp"
#include "plan/step_event.hpp"

namespace plimsoll::nn
{

/// Installs the allocator and returns its counter, the same one at each call. Call before the first tensor is made; blocks
/// made earlier stay with the allocator that made them. Thread-safe.
MemoryTracker& install_cpu_allocator();

/// While it lives, blocks that this thread allocates count in a tracker of their own, for ranks that are threads. Trackers are
/// never destroyed, so that blocks may end after it; they are used again. @pre this thread has none yet
class RankMemoryScope
{
  public:
    RankMemoryScope();
    ~RankMemoryScope();
    RankMemoryScope(const RankMemoryScope&) = delete;
    RankMemoryScope& operator=(const RankMemoryScope&) = delete;
    MemoryTracker& tracker() { return *tracker_; }

  private:
    MemoryTracker* tracker_ = nullptr;
};

/// Says what the block behind a tensor is: its bytes count under that category from here on, and a recording gets the name
/// (a literal of the activation table). Views and tensors of other allocators are left alone.
void name_tensor(const at::Tensor& tensor, const char* name, MemoryUse use);

/// Gives the kept blocks back to the system.
void release_kept_blocks();

}  // namespace plimsoll::nn
