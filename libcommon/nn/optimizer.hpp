#pragma once
/// AdamW (Loshchilov and Hutter 2019, decoupled decay) on flat ranges, with the rules and the order of
/// torch.optim.AdamW:
///
///     g = grad * grad_scale
///     p = p * (1 - lr * weight_decay)
///     m = m + (1 - beta1) (g - m)
///     v = beta2 v + (1 - beta2) g^2
///     p = p - lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
///
/// Elements are independent: neither threads nor shards change a bit. Gaps of the flat layout (all zero) stay zero.

#include <cstdint>
#include <vector>

#include "layout/flat_layout.hpp"
#include "mem/buffer_view.hpp"

namespace plimsoll::nn
{

enum class AfterUpdate
{
    keep_gradient,
    zero_gradient,  ///< in the same pass over memory
};

struct AdamWStep
{
    double lr = 0;
    double beta1 = 0.9;
    double beta2 = 0.95;
    double eps = 1e-8;
    double weight_decay = 0;
    std::int64_t step = 1;    ///< t, of the first update 1
    double grad_scale = 1.0;  ///< nominal / valid tokens times the clip factor
    AfterUpdate after = AfterUpdate::keep_gradient;
};

/// One update of equally long f32 or f64 ranges of one type. `rounded`: receives the new values of `param` in bf16, where it has
/// elements.
void adamw_update(const AdamWStep& step, BufferView param, BufferView grad, BufferView moment1, BufferView moment2,
                  BufferView rounded = {});

/// A part of a flat unit that is updated with one decay.
struct OptimizerRange
{
    std::int64_t begin = 0;  ///< elements from the unit's start
    std::int64_t end = 0;
    DecayGroup group = DecayGroup::decay;
};

/// The parts of [begin, end) (a dp shard) of `unit` that are trained: decay, then no_decay; empty parts left out.
std::vector<OptimizerRange> optimizer_ranges(const FlatUnit& unit, std::int64_t begin, std::int64_t end);

/// Updates the part [begin, end) of a unit; the views hold this part, `rounded` too unless it is empty. Weight decay counts for the
/// decay group only; the frozen part is left alone.
void adamw_update_unit(const AdamWStep& step, const FlatUnit& unit, std::int64_t begin, std::int64_t end,
                       BufferView param, BufferView grad, BufferView moment1, BufferView moment2, BufferView rounded = {});

/// Sum of squares in f64, by fixed blocks: the same bits for every number of threads. f32 or f64. NaN and Inf
/// propagate.
double sum_of_squares(BufferView data);

/// Factor that brings a global gradient norm down to `max_norm` as torch's clip_grad_norm_ does:
/// min(1, max_norm / (norm + 1e-6)); 1 when max_norm is 0 (off).
double clip_factor(double norm, double max_norm);

}  // namespace plimsoll::nn
