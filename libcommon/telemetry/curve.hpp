#pragma once
/// A value over the steps of a run, in bounded memory: steps fall into at most so many buckets of equal width.

#include <cstdint>
#include <vector>

namespace plimsoll
{

/// What fell into first_step..last_step. Values that are no number are counted and left out of the rest.
struct CurveBucket
{
    std::int64_t first_step = 0;
    std::int64_t last_step = 0;
    std::int64_t count = 0;  ///< finite values
    double minimum = 0;
    double maximum = 0;
    double sum = 0;
    std::int64_t not_finite = 0;

    double mean() const { return count > 0 ? sum / static_cast<double>(count) : 0; }
    /// Where it is drawn.
    double middle() const { return 0.5 * static_cast<double>(first_step + last_step); }
};

/// Not thread-safe.
///
///     Curve curve(1, 1000, 500);  // buckets of two steps
///     curve.add(7, 3.5);          // in the bucket 7..8
class Curve
{
  public:
    Curve() = default;
    /// @pre first_step <= last_step, max_buckets >= 1
    Curve(std::int64_t first_step, std::int64_t last_step, std::int64_t max_buckets);

    /// @pre first_step <= step <= last_step
    void add(std::int64_t step, double value);

    /// Those that hold something, in the order of steps.
    std::vector<CurveBucket> buckets() const;
    std::int64_t bucket_steps() const { return width_; }
    /// Bucket that `step` belongs to.
    std::size_t index_of(std::int64_t step) const { return static_cast<std::size_t>((step - first_step_) / width_); }

    std::int64_t count() const { return count_; }  ///< finite values
    std::int64_t not_finite() const { return not_finite_; }
    double minimum() const { return minimum_; }
    double maximum() const { return maximum_; }
    /// The value added last and its step; NaN before any.
    double last_value() const { return last_value_; }
    std::int64_t last_value_step() const { return last_value_step_; }
    double first_value() const { return first_value_; }

  private:
    std::int64_t first_step_ = 0;
    std::int64_t last_step_ = -1;
    std::int64_t width_ = 1;
    std::vector<CurveBucket> all_;
    std::int64_t count_ = 0;
    std::int64_t not_finite_ = 0;
    double minimum_ = 0;
    double maximum_ = 0;
    double first_value_ = not_a_number();
    double last_value_ = not_a_number();
    std::int64_t last_value_step_ = 0;

    static double not_a_number();
};

/// Median of any number of values in bounded memory: exact up to `capacity` values, then of every second, fourth, ... one.
/// Not thread-safe.
class BoundedMedian
{
  public:
    explicit BoundedMedian(std::size_t capacity = 65536) : capacity_(capacity) {}

    /// Values that are no number are left out.
    void add(double value);
    /// The lower one of the two in the middle; 0 without any.
    double value() const;
    std::int64_t count() const { return count_; }

  private:
    std::size_t capacity_;
    std::int64_t stride_ = 1;
    std::int64_t count_ = 0;
    std::vector<double> kept_;
};

}  // namespace plimsoll
