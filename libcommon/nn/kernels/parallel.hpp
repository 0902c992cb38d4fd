#pragma once
/// Loops over ATen's pool of threads, for own kernels.

#include <algorithm>
#include <cstdint>
#include <functional>

#include "plan/kernel_shapes.hpp"

namespace plimsoll::nn::kernels
{

/// Calls body(first, last) for ranges that together are [0, count), each at least `grain` long but the last, on up to
/// at::get_num_threads() threads. The cuts depend on the number of threads: results must not depend on the cuts.
/// Inside another parallel region: one call. An exception of `body` reaches the caller.
void parallel_for(std::int64_t count, std::int64_t grain, const std::function<void(std::int64_t, std::int64_t)>& body);

/// Calls body(first, last) for each block of `block` elements of [0, count), blocks in parallel. The cuts depend on
/// `count` and `block` only.
void parallel_blocks(std::int64_t count, std::int64_t block,
                     const std::function<void(std::int64_t, std::int64_t)>& body);

using plimsoll::sum_block_rows;

}  // namespace plimsoll::nn::kernels
