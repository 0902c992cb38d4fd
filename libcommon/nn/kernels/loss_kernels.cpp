#include "nn/kernels/loss_kernels.hpp"

#include <algorithm>
#include <cmath>

#include "nn/kernels/vector_math.hpp"

namespace plimsoll::nn::kernels
{

namespace
{

template<class T>
PLIMSOLL_INLINE double loss_row(T* logits, std::int64_t vocab, std::int64_t label, double& sum)
{
    T top = logits[0];
#pragma omp simd reduction(max : top)
    for (std::int64_t v = 0; v < vocab; ++v) { top = logits[v] > top ? logits[v] : top; }
    const double label_logit = double(logits[label]);

    // Short fp32 partial sums, then fp64: the error stays that of one block however large the vocabulary.
    constexpr std::int64_t block = 1024;
    double total = 0;
    for (std::int64_t first = 0; first < vocab; first += block)
    {
        const std::int64_t last = std::min(first + block, vocab);
        T partial = 0;
#pragma omp simd reduction(+ : partial)
        for (std::int64_t v = first; v < last; ++v)
        {
            const T e = vector_exp(logits[v] - top);
            logits[v] = e;
            partial += e;
        }
        total += double(partial);
    }
    sum = total;
    return std::log(total) + double(top) - label_logit;
}

template<class T>
PLIMSOLL_INLINE void gradient_row(T* row, std::int64_t vocab, std::int64_t label, double sum, double scale)
{
    const T factor = T(scale / sum);
    // (p - 1) from the unscaled value: p - 1 cancels less than factor * e - scale.
    const T at_label = T((double(row[label]) / sum - 1.0) * scale);
#pragma omp simd
    for (std::int64_t v = 0; v < vocab; ++v) { row[v] *= factor; }
    row[label] = at_label;
}

}  // namespace

PLIMSOLL_VECTORISED double cross_entropy_row(float* logits, std::int64_t vocab, std::int64_t label, double& sum)
{
    return loss_row(logits, vocab, label, sum);
}
PLIMSOLL_VECTORISED double cross_entropy_row(double* logits, std::int64_t vocab, std::int64_t label, double& sum)
{
    return loss_row(logits, vocab, label, sum);
}

PLIMSOLL_VECTORISED void cross_entropy_gradient_row(float* row, std::int64_t vocab, std::int64_t label, double sum,
                                                    double scale)
{
    gradient_row(row, vocab, label, sum, scale);
}
PLIMSOLL_VECTORISED void cross_entropy_gradient_row(double* row, std::int64_t vocab, std::int64_t label, double sum,
                                                    double scale)
{
    gradient_row(row, vocab, label, sum, scale);
}

}  // namespace plimsoll::nn::kernels
