#include "nn/kernels/loss_kernels.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "nn/kernels/vector_math.hpp"

namespace plimsoll::nn::kernels
{

namespace
{

template<class T>
PLIMSOLL_INLINE RowStatistics statistics_of_row(T* logits, std::int64_t columns, std::int64_t label)
{
    RowStatistics row;
    if (columns == 0)
    {
        row.top = -std::numeric_limits<double>::infinity();
        return row;
    }
    T top = logits[0];
#pragma omp simd reduction(max : top)
    for (std::int64_t v = 0; v < columns; ++v) { top = logits[v] > top ? logits[v] : top; }
    if (label >= 0) { row.label_logit = double(logits[label]); }

    // Short fp32 partial sums, then fp64: the error stays that of one block however large the vocabulary.
    constexpr std::int64_t block = 1024;
    double total = 0;
    for (std::int64_t first = 0; first < columns; first += block)
    {
        const std::int64_t last = std::min(first + block, columns);
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
    row.top = double(top);
    row.sum = total;
    return row;
}

template<class T>
PLIMSOLL_INLINE void gradient_row(T* row, std::int64_t columns, std::int64_t label, double factor, double scale)
{
    const T scaled = T(scale * factor);
    // (p - 1) from the unscaled value: p - 1 cancels less than factor * e - scale.
    const T at_label = label >= 0 ? T((double(row[label]) * factor - 1.0) * scale) : T(0);
#pragma omp simd
    for (std::int64_t v = 0; v < columns; ++v) { row[v] *= scaled; }
    if (label >= 0) { row[label] = at_label; }
}

/// exp(logit - part.top) times this is the softmax of the whole row.
double softmax_factor(const RowStatistics& part, const RowStatistics& whole)
{
    return part.top == whole.top ? 1.0 / whole.sum : std::exp(part.top - whole.top) / whole.sum;
}

}  // namespace

PLIMSOLL_VECTORISED RowStatistics cross_entropy_row(float* logits, std::int64_t columns, std::int64_t label)
{
    return statistics_of_row(logits, columns, label);
}
PLIMSOLL_VECTORISED RowStatistics cross_entropy_row(double* logits, std::int64_t columns, std::int64_t label)
{
    return statistics_of_row(logits, columns, label);
}

RowStatistics combine(const RowStatistics* parts, std::int64_t num_parts, std::int64_t stride)
{
    RowStatistics whole = parts[0];
    // A NaN must not be lost: no comparison with it is true.
    for (std::int64_t p = 1; p < num_parts; ++p)
    {
        if (!(parts[p * stride].top <= whole.top)) { whole.top = parts[p * stride].top; }
    }
    whole.sum = whole.label_logit = 0;
    for (std::int64_t p = 0; p < num_parts; ++p)
    {
        const RowStatistics& part = parts[p * stride];
        whole.sum += part.sum == 0 ? 0 : part.sum * (part.top == whole.top ? 1.0 : std::exp(part.top - whole.top));
        whole.label_logit += part.label_logit;
    }
    return whole;
}

double cross_entropy(const RowStatistics& row) { return std::log(row.sum) + row.top - row.label_logit; }

PLIMSOLL_VECTORISED void cross_entropy_gradient_row(float* row, std::int64_t columns, std::int64_t label,
                                                    const RowStatistics& part, const RowStatistics& whole, double scale)
{
    gradient_row(row, columns, label, softmax_factor(part, whole), scale);
}
PLIMSOLL_VECTORISED void cross_entropy_gradient_row(double* row, std::int64_t columns, std::int64_t label,
                                                    const RowStatistics& part, const RowStatistics& whole, double scale)
{
    gradient_row(row, columns, label, softmax_factor(part, whole), scale);
}

}  // namespace plimsoll::nn::kernels
