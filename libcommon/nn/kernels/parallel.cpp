#include "nn/kernels/parallel.hpp"

#include <ATen/Parallel.h>

namespace plimsoll::nn::kernels
{

void parallel_for(std::int64_t count, std::int64_t grain, const std::function<void(std::int64_t, std::int64_t)>& body)
{
    at::parallel_for(0, count, std::max<std::int64_t>(grain, 1), body);
}

void parallel_blocks(std::int64_t count, std::int64_t block,
                     const std::function<void(std::int64_t, std::int64_t)>& body)
{
    const std::int64_t blocks = (count + block - 1) / block;
    at::parallel_for(0, blocks, 1,
                     [&](std::int64_t first, std::int64_t last)
                     {
                         for (std::int64_t i = first; i < last; ++i)
                         {
                             body(i * block, std::min((i + 1) * block, count));
                         }
                     });
}

}  // namespace plimsoll::nn::kernels
