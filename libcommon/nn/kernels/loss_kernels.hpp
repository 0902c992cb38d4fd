#pragma once
/// Cross entropy of one row of logits. Torch-free; float and double.

#include <cstdint>

namespace plimsoll::nn::kernels
{

/// Loss in nats: log(sum exp) - logits[label]. The row is left as exp(logit - max); `sum` receives their sum.
double cross_entropy_row(float* logits, std::int64_t vocab, std::int64_t label, double& sum);
double cross_entropy_row(double* logits, std::int64_t vocab, std::int64_t label, double& sum);

/// Turns what cross_entropy_row left into the gradient (exp / sum - onehot) * scale.
void cross_entropy_gradient_row(float* row, std::int64_t vocab, std::int64_t label, double sum, double scale);
void cross_entropy_gradient_row(double* row, std::int64_t vocab, std::int64_t label, double sum, double scale);

}  // namespace plimsoll::nn::kernels
