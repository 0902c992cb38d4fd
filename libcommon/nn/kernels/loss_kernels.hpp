#pragma once
/// Cross entropy of one row of logits, or of one rank's columns of it, with the terms that training may add. Torch-free; float
/// and double.
///
///     lse    = log(sum_v exp(logit_v))
///     loss   = lse - (1 - e) logit_label - e / V sum_v logit_v + z lse^2     e label smoothing, z z-loss
///     dlogit = softmax (1 + 2 z lse) - (1 - e) onehot - e / V                V the whole vocabulary, not a rank's columns
///
/// e as in Szegedy et al., CVPR'16 (the target is (1 - e) onehot + e uniform); z as in PaLM, section 5.

#include <cstdint>

namespace plimsoll::nn::kernels
{

/// What a part of a row says of itself; the parts of all ranks together give the loss.
struct RowStatistics
{
    double top = 0;          ///< largest logit; -inf without columns
    double sum = 0;          ///< of exp(logit - top)
    double label_logit = 0;  ///< 0 when the label is not among the columns
    double logit_sum = 0;    ///< of all columns; 0 with LogitSum::left_out
};

/// Whether label smoothing needs the sum of the logits; it is taken in the pass over the exponentials.
enum class LogitSum
{
    left_out,
    taken,
};

struct LossTerms
{
    double label_smoothing = 0;  ///< in [0, 1)
    double z_loss = 0;           ///< coefficient of lse^2
    std::int64_t vocab = 0;      ///< V; read with label smoothing only
    LogitSum logit_sum() const { return label_smoothing > 0 ? LogitSum::taken : LogitSum::left_out; }
};

/// The row is left as exp(logit - top). `label`: a column, or negative when it is not here.
RowStatistics cross_entropy_row(float* logits, std::int64_t columns, std::int64_t label, LogitSum sum);
RowStatistics cross_entropy_row(double* logits, std::int64_t columns, std::int64_t label, LogitSum sum);

/// Several parts of one row as one, taken in order. @pre at least one of them has a column
RowStatistics combine(const RowStatistics* parts, std::int64_t num_parts, std::int64_t stride);

/// Loss in nats of a whole row: log(sum exp) - logits[label].
double cross_entropy(const RowStatistics& row);
/// The same with the terms: what training minimises.
double training_loss(const RowStatistics& row, const LossTerms& terms);

/// Turns what cross_entropy_row() left, with the statistics `part` that it returned, into the gradient dlogit * scale of the row
/// whose statistics are `whole`.
void cross_entropy_gradient_row(float* row, std::int64_t columns, std::int64_t label, const RowStatistics& part,
                                const RowStatistics& whole, const LossTerms& terms, double scale);
void cross_entropy_gradient_row(double* row, std::int64_t columns, std::int64_t label, const RowStatistics& part,
                                const RowStatistics& whole, const LossTerms& terms, double scale);

}  // namespace plimsoll::nn::kernels
