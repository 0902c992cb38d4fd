#include "telemetry/curve.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.hpp"

namespace plimsoll
{

double Curve::not_a_number() { return std::numeric_limits<double>::quiet_NaN(); }

Curve::Curve(std::int64_t first_step, std::int64_t last_step, std::int64_t max_buckets)
    : first_step_(first_step),
      last_step_(last_step)
{
    EXPECT(first_step <= last_step && max_buckets >= 1);
    const std::int64_t steps = last_step - first_step + 1;
    width_ = (steps + max_buckets - 1) / max_buckets;
    all_.resize(static_cast<std::size_t>((steps + width_ - 1) / width_));
    for (std::size_t k = 0; k < all_.size(); ++k)
    {
        all_[k].first_step = first_step + static_cast<std::int64_t>(k) * width_;
        all_[k].last_step = std::min(all_[k].first_step + width_ - 1, last_step);
    }
}

void Curve::add(std::int64_t step, double value)
{
    EXPECT(step >= first_step_ && step <= last_step_);
    CurveBucket& bucket = all_[index_of(step)];
    if (count_ + not_finite_ == 0) { first_value_ = value; }
    last_value_ = value;
    last_value_step_ = step;
    if (!std::isfinite(value))
    {
        ++bucket.not_finite;
        ++not_finite_;
        return;
    }
    bucket.minimum = bucket.count == 0 ? value : std::min(bucket.minimum, value);
    bucket.maximum = bucket.count == 0 ? value : std::max(bucket.maximum, value);
    bucket.sum += value;
    ++bucket.count;
    minimum_ = count_ == 0 ? value : std::min(minimum_, value);
    maximum_ = count_ == 0 ? value : std::max(maximum_, value);
    ++count_;
}

std::vector<CurveBucket> Curve::buckets() const
{
    std::vector<CurveBucket> filled;
    for (const CurveBucket& bucket : all_)
    {
        if (bucket.count + bucket.not_finite > 0) { filled.push_back(bucket); }
    }
    return filled;
}

void BoundedMedian::add(double value)
{
    if (!std::isfinite(value)) { return; }
    if (count_++ % stride_ != 0) { return; }
    kept_.push_back(value);
    if (kept_.size() < capacity_) { return; }
    for (std::size_t k = 0; 2 * k < kept_.size(); ++k) { kept_[k] = kept_[2 * k]; }
    kept_.resize((kept_.size() + 1) / 2);
    stride_ *= 2;
}

double BoundedMedian::value() const
{
    if (kept_.empty()) { return 0; }
    std::vector<double> sorted = kept_;
    const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>((sorted.size() - 1) / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    return *middle;
}

}  // namespace plimsoll
