#pragma once
/// AdamW and sums over flat ranges, on one thread. Torch-free; float and double.

#include <cstdint>

namespace plimsoll::nn::kernels
{

/// The scalars of one update, as nn/optimizer.hpp defines them.
struct AdamWFactors
{
    double grad_scale = 1;
    double decay = 1;  ///< 1 - lr * weight_decay
    double beta1 = 0;
    double beta2 = 0;
    double step_size = 0;     ///< lr / (1 - beta1^t)
    double inverse_root = 1;  ///< 1 / sqrt(1 - beta2^t)
    double eps = 0;
};

void adamw_range(const AdamWFactors& factors, float* param, float* grad, float* moment1, float* moment2,
                 std::int64_t count);
void adamw_range(const AdamWFactors& factors, double* param, double* grad, double* moment1, double* moment2,
                 std::int64_t count);

/// As adamw_range, and leaves zeros in `grad`.
void adamw_range_zeroing(const AdamWFactors& factors, float* param, float* grad, float* moment1, float* moment2,
                         std::int64_t count);
void adamw_range_zeroing(const AdamWFactors& factors, double* param, double* grad, double* moment1, double* moment2,
                         std::int64_t count);

double sum_of_squares_range(const float* data, std::int64_t count);
double sum_of_squares_range(const double* data, std::int64_t count);

}  // namespace plimsoll::nn::kernels
