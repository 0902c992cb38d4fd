#include "nn/kernels/loss_kernels.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "nn/kernels/vector_math.hpp"

namespace plimsoll::nn::kernels
{

namespace
{

template<LogitSum sum, class T>
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
    double below_top = 0;  // sum of logit - top: of one sign, so that it does not cancel
    for (std::int64_t first = 0; first < columns; first += block)
    {
        const std::int64_t last = std::min(first + block, columns);
        T partial = 0;
        T partial_below = 0;
#pragma omp simd reduction(+ : partial, partial_below)
        for (std::int64_t v = first; v < last; ++v)
        {
            const T below = logits[v] - top;
            const T e = vector_exp(below);
            logits[v] = e;
            partial += e;
            if constexpr (sum == LogitSum::taken) { partial_below += below; }
        }
        total += double(partial);
        below_top += double(partial_below);
    }
    row.top = double(top);
    row.sum = total;
    if (sum == LogitSum::taken) { row.logit_sum = below_top + double(columns) * row.top; }
    return row;
}

template<class T>
PLIMSOLL_INLINE RowStatistics statistics_of_row(T* logits, std::int64_t columns, std::int64_t label, LogitSum sum)
{
    return sum == LogitSum::taken ? statistics_of_row<LogitSum::taken>(logits, columns, label)
                                  : statistics_of_row<LogitSum::left_out>(logits, columns, label);
}

/// `factor` of the exponentials; `elsewhere` is the target's share of each entry, `at_label_only` what its label has besides.
template<class T>
PLIMSOLL_INLINE void gradient_row(T* row, std::int64_t columns, std::int64_t label, double factor, double elsewhere,
                                  double at_label_only, double scale)
{
    const T scaled = T(scale * factor);
    // (p - 1) from the unscaled value: p - 1 cancels less than factor * e - scale.
    const T at_label = label >= 0 ? T((double(row[label]) * factor - elsewhere - at_label_only) * scale) : T(0);
    if (elsewhere == 0)
    {
#pragma omp simd
        for (std::int64_t v = 0; v < columns; ++v) { row[v] *= scaled; }
    }
    else
    {
        const T offset = T(elsewhere * scale);
#pragma omp simd
        for (std::int64_t v = 0; v < columns; ++v) { row[v] = row[v] * scaled - offset; }
    }
    if (label >= 0) { row[label] = at_label; }
}

/// exp(logit - part.top) times this is the softmax of the whole row.
double softmax_factor(const RowStatistics& part, const RowStatistics& whole)
{
    return part.top == whole.top ? 1.0 / whole.sum : std::exp(part.top - whole.top) / whole.sum;
}

double log_sum_exp(const RowStatistics& row) { return std::log(row.sum) + row.top; }

template<class T>
PLIMSOLL_INLINE void gradient_row(T* row, std::int64_t columns, std::int64_t label, const RowStatistics& part,
                                  const RowStatistics& whole, const LossTerms& terms, double scale)
{
    double factor = softmax_factor(part, whole);
    if (terms.z_loss > 0) { factor *= 1.0 + 2.0 * terms.z_loss * log_sum_exp(whole); }
    const double uniform = terms.label_smoothing > 0 ? terms.label_smoothing / double(terms.vocab) : 0.0;
    gradient_row(row, columns, label, factor, uniform, 1.0 - terms.label_smoothing, scale);
}

}  // namespace

PLIMSOLL_VECTORISED RowStatistics cross_entropy_row(float* logits, std::int64_t columns, std::int64_t label, LogitSum sum)
{
    return statistics_of_row(logits, columns, label, sum);
}
PLIMSOLL_VECTORISED RowStatistics cross_entropy_row(double* logits, std::int64_t columns, std::int64_t label, LogitSum sum)
{
    return statistics_of_row(logits, columns, label, sum);
}

RowStatistics combine(const RowStatistics* parts, std::int64_t num_parts, std::int64_t stride)
{
    RowStatistics whole = parts[0];
    // A NaN must not be lost: no comparison with it is true.
    for (std::int64_t p = 1; p < num_parts; ++p)
    {
        if (!(parts[p * stride].top <= whole.top)) { whole.top = parts[p * stride].top; }
    }
    whole.sum = whole.label_logit = whole.logit_sum = 0;
    for (std::int64_t p = 0; p < num_parts; ++p)
    {
        const RowStatistics& part = parts[p * stride];
        whole.sum += part.sum == 0 ? 0 : part.sum * (part.top == whole.top ? 1.0 : std::exp(part.top - whole.top));
        whole.label_logit += part.label_logit;
        whole.logit_sum += part.logit_sum;
    }
    return whole;
}

double cross_entropy(const RowStatistics& row) { return log_sum_exp(row) - row.label_logit; }

double training_loss(const RowStatistics& row, const LossTerms& terms)
{
    const double lse = log_sum_exp(row);
    double loss = lse - row.label_logit;
    if (terms.label_smoothing > 0)
    {
        const double uniform = lse - row.logit_sum / double(terms.vocab);
        loss = (1.0 - terms.label_smoothing) * loss + terms.label_smoothing * uniform;
    }
    if (terms.z_loss > 0) { loss += terms.z_loss * lse * lse; }
    return loss;
}

PLIMSOLL_VECTORISED void cross_entropy_gradient_row(float* row, std::int64_t columns, std::int64_t label,
                                                    const RowStatistics& part, const RowStatistics& whole,
                                                    const LossTerms& terms, double scale)
{
    gradient_row(row, columns, label, part, whole, terms, scale);
}
PLIMSOLL_VECTORISED void cross_entropy_gradient_row(double* row, std::int64_t columns, std::int64_t label,
                                                    const RowStatistics& part, const RowStatistics& whole,
                                                    const LossTerms& terms, double scale)
{
    gradient_row(row, columns, label, part, whole, terms, scale);
}

}  // namespace plimsoll::nn::kernels
