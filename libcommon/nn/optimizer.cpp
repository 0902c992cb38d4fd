#include "nn/optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "base/error.hpp"
#include "nn/kernels/convert_kernels.hpp"
#include "nn/kernels/optimizer_kernels.hpp"
#include "nn/kernels/parallel.hpp"

namespace plimsoll::nn
{

namespace
{

constexpr std::int64_t elements_per_block = 16384;

kernels::AdamWFactors factors_of(const AdamWStep& step)
{
    const double t = static_cast<double>(step.step);
    kernels::AdamWFactors factors;
    factors.grad_scale = step.grad_scale;
    factors.decay = 1.0 - step.lr * step.weight_decay;
    factors.beta1 = step.beta1;
    factors.beta2 = step.beta2;
    factors.step_size = step.lr / (1.0 - std::pow(step.beta1, t));
    factors.inverse_root = 1.0 / std::sqrt(1.0 - std::pow(step.beta2, t));
    factors.eps = step.eps;
    return factors;
}

template<class T>
void update(const AdamWStep& step, BufferView param, BufferView grad, BufferView moment1, BufferView moment2, BufferView rounded)
{
    const kernels::AdamWFactors factors = factors_of(step);
    T* p = static_cast<T*>(param.data);
    T* g = static_cast<T*>(grad.data);
    T* m = static_cast<T*>(moment1.data);
    T* v = static_cast<T*>(moment2.data);
    Bf16* r = static_cast<Bf16*>(rounded.data);
    kernels::parallel_blocks(param.count, elements_per_block,
                             [&](std::int64_t i, std::int64_t last)
                             {
                                 if (step.after == AfterUpdate::zero_gradient)
                                 {
                                     kernels::adamw_range_zeroing(factors, p + i, g + i, m + i, v + i, last - i);
                                 }
                                 else { kernels::adamw_range(factors, p + i, g + i, m + i, v + i, last - i); }
                                 if constexpr (std::is_same_v<T, float>)
                                 {
                                     if (r != nullptr) { kernels::narrow(p + i, r + i, last - i); }  // still in a cache
                                 }
                             });
}

template<class T>
double squares(BufferView data)
{
    const T* values = static_cast<const T*>(data.data);
    const std::int64_t blocks = (data.count + elements_per_block - 1) / elements_per_block;
    std::vector<double> partial(static_cast<std::size_t>(blocks));
    kernels::parallel_blocks(data.count, elements_per_block,
                             [&](std::int64_t first, std::int64_t last)
                             {
                                 partial[static_cast<std::size_t>(first / elements_per_block)] =
                                     kernels::sum_of_squares_range(values + first, last - first);
                             });
    double sum = 0;
    for (const double value : partial) { sum += value; }
    return sum;
}

}  // namespace

void adamw_update(const AdamWStep& step, BufferView param, BufferView grad, BufferView moment1, BufferView moment2,
                  BufferView rounded)
{
    EXPECT(step.step >= 1);
    EXPECT(grad.count == param.count && moment1.count == param.count && moment2.count == param.count);
    EXPECT(grad.dtype == param.dtype && moment1.dtype == param.dtype && moment2.dtype == param.dtype);
    EXPECT(param.dtype == Dtype::f32 || param.dtype == Dtype::f64);
    EXPECT(rounded.count == 0 ||
           (rounded.dtype == Dtype::bf16 && rounded.count == param.count && param.dtype == Dtype::f32));
    if (param.dtype == Dtype::f32) { update<float>(step, param, grad, moment1, moment2, rounded); }
    else { update<double>(step, param, grad, moment1, moment2, rounded); }
}

std::vector<OptimizerRange> optimizer_ranges(const FlatUnit& unit, std::int64_t begin, std::int64_t end)
{
    std::vector<OptimizerRange> ranges;
    const auto add = [&](std::int64_t group_begin, std::int64_t group_end, DecayGroup group)
    {
        const std::int64_t from = std::max(begin, group_begin);
        const std::int64_t to = std::min(end, group_end);
        if (from < to) { ranges.push_back({from, to, group}); }
    };
    add(0, unit.decay_elements, DecayGroup::decay);
    add(unit.decay_elements, unit.frozen_begin, DecayGroup::no_decay);
    return ranges;
}

void adamw_update_unit(const AdamWStep& step, const FlatUnit& unit, std::int64_t begin, std::int64_t end,
                       BufferView param, BufferView grad, BufferView moment1, BufferView moment2, BufferView rounded)
{
    EXPECT(0 <= begin && begin <= end && end <= unit.num_elements);
    EXPECT(param.count == end - begin && grad.count == end - begin);
    EXPECT(moment1.count == end - begin && moment2.count == end - begin);
    for (const OptimizerRange& range : optimizer_ranges(unit, begin, end))
    {
        AdamWStep of_group = step;
        if (range.group != DecayGroup::decay) { of_group.weight_decay = 0; }
        const std::int64_t count = range.end - range.begin;
        const std::int64_t first = range.begin - begin;
        adamw_update(of_group, param.slice(first, count), grad.slice(first, count), moment1.slice(first, count),
                     moment2.slice(first, count), rounded.count > 0 ? rounded.slice(first, count) : rounded);
    }
}

double sum_of_squares(BufferView data)
{
    EXPECT(data.dtype == Dtype::f32 || data.dtype == Dtype::f64);
    return data.dtype == Dtype::f32 ? squares<float>(data) : squares<double>(data);
}

double clip_factor(double norm, double max_norm)
{
    if (max_norm <= 0) { return 1.0; }
    return std::min(1.0, max_norm / (norm + 1e-6));
}

}  // namespace plimsoll::nn
