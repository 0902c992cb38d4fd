#include "nn/ops/residual.hpp"

#include "nn/kernels/parallel.hpp"
#include "nn/kernels/row_kernels.hpp"
#include "nn/ops/dispatch.hpp"

namespace plimsoll::nn
{

at::Tensor residual_add(const OpContext&, const at::Tensor& x_ND, const at::Tensor& branch_ND)
{
    EXPECT(x_ND.sizes() == branch_ND.sizes() && x_ND.scalar_type() == branch_ND.scalar_type());
    dispatch_real(x_ND.scalar_type(),
                  [&](auto zero)
                  {
                      using T = decltype(zero);
                      const T* x = elements<T>(x_ND);
                      T* sum = mutable_elements<T>(branch_ND);
                      constexpr std::int64_t block = 16384;
                      kernels::parallel_blocks(x_ND.numel(), block,
                                               [&](std::int64_t first, std::int64_t last) {
                                                   kernels::add_vectors(x + first, sum + first, sum + first,
                                                                        last - first);
                                               });
                  });
    return branch_ND;
}

}  // namespace plimsoll::nn
