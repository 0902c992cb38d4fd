#pragma once
/// The process-wide CPU allocator of tensors: counts every block by tag and keeps large ones for reuse.
///
/// Blocks of at least 1 MiB are kept on free lists by rounded size: a training step asks for the same sizes again and again,
/// and pages that stay mapped need no zeroing by the kernel. What is kept never exceeds the peak of what was in use.

#include <cstdint>

#include "mem/tracking.hpp"

namespace plimsoll::nn
{

/// Installs the allocator and returns its counter, the same one at each call. Call before the first tensor is made; blocks
/// made earlier stay with the allocator that made them. Thread-safe.
MemoryTracker& install_cpu_allocator();

/// Gives the kept blocks back to the system.
void release_kept_blocks();

}  // namespace plimsoll::nn
