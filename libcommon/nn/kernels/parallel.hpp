#pragma once
/// Loops over ATen's pool of threads, for own kernels.

#include <algorithm>
#include <cstdint>
#include <functional>

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

/// Rows that one block of a sum over rows takes: at least 64, at most 64 blocks. Depends on `rows` only, so that a
/// sum by blocks has the same bits for every number of threads.
inline std::int64_t sum_block_rows(std::int64_t rows)
{
    constexpr std::int64_t most_blocks = 64;
    return std::max<std::int64_t>(64, (rows + most_blocks - 1) / most_blocks);
}

}  // namespace plimsoll::nn::kernels
