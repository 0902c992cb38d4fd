#pragma once
/// Cross entropy of one row of logits, or of one rank's columns of it. Torch-free; float and double.

#include <cstdint>

namespace plimsoll::nn::kernels
{

/// What a part of a row says of itself; the parts of all ranks together give the loss.
struct RowStatistics
{
    double top = 0;          ///< largest logit; -inf without columns
    double sum = 0;          ///< of exp(logit - top)
    double label_logit = 0;  ///< 0 when the label is not among the columns
};

/// The row is left as exp(logit - top). `label`: a column, or negative when it is not here.
RowStatistics cross_entropy_row(float* logits, std::int64_t columns, std::int64_t label);
RowStatistics cross_entropy_row(double* logits, std::int64_t columns, std::int64_t label);

/// Several parts of one row as one, taken in order. @pre at least one of them has a column
RowStatistics combine(const RowStatistics* parts, std::int64_t num_parts, std::int64_t stride);

/// Loss in nats of a whole row: log(sum exp) - logits[label].
double cross_entropy(const RowStatistics& row);

/// Turns what cross_entropy_row() left, with the statistics `part` that it returned, into the gradient
/// (softmax - onehot) * scale of the row whose statistics are `whole`.
void cross_entropy_gradient_row(float* row, std::int64_t columns, std::int64_t label, const RowStatistics& part,
                                const RowStatistics& whole, double scale);
void cross_entropy_gradient_row(double* row, std::int64_t columns, std::int64_t label, const RowStatistics& part,
                                const RowStatistics& whole, double scale);

}  // namespace plimsoll::nn::kernels
