#pragma once
/// Learning rate of a step: linear warm-up, then constant, cosine or WSD (constant, then a linear decay at the end).
///
///     t <= warmup           lr * t / warmup
///     constant              lr
///     cosine                min_lr + (lr - min_lr) (1 + cos(pi (t - warmup) / (total - warmup))) / 2
///     wsd                   lr until t = total - decay, then lr + (min_lr - lr) (t - (total - decay)) / decay
///     t >= total            min_lr (cosine, wsd with a decay; but a step within the warm-up always warms up)
///
/// t counts updates from 1: the first update of a warm-up over w steps uses lr/w, update w uses lr, update `total`
/// min_lr.

#include <cstdint>
#include <string>

namespace plimsoll::nn
{

enum class ScheduleKind
{
    constant,
    cosine,
    wsd
};

/// "constant", "cosine" or "wsd". @throws ConfigError naming the three
ScheduleKind schedule_kind(const std::string& name);

struct LrSchedule
{
    ScheduleKind kind = ScheduleKind::cosine;
    double lr = 0;
    double min_lr = 0;
    std::int64_t warmup_steps = 0;
    std::int64_t decay_steps = 0;  ///< wsd only
    std::int64_t total_steps = 0;
};

/// @pre 0 <= warmup_steps, warmup_steps + decay_steps <= total_steps. @throws ConfigError otherwise
void validate_lr_schedule(const LrSchedule& schedule);

/// Learning rate of update `step` (1, 2, ...). Pure.
double learning_rate(const LrSchedule& schedule, std::int64_t step);

}  // namespace plimsoll::nn
