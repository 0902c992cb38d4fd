#include "nn/lr_schedule.hpp"

#include <cmath>

#include "base/error.hpp"

namespace plimsoll::nn
{

namespace
{

double cosine_rate(const LrSchedule& schedule, std::int64_t step)
{
    const double done = static_cast<double>(step - schedule.warmup_steps) /
                        static_cast<double>(schedule.total_steps - schedule.warmup_steps);
    return schedule.min_lr + (schedule.lr - schedule.min_lr) * 0.5 * (1.0 + std::cos(M_PI * done));
}

double wsd_rate(const LrSchedule& schedule, std::int64_t step)
{
    const std::int64_t decay_begin = schedule.total_steps - schedule.decay_steps;
    if (step <= decay_begin) { return schedule.lr; }
    const double done = static_cast<double>(step - decay_begin) / static_cast<double>(schedule.decay_steps);
    return schedule.lr + (schedule.min_lr - schedule.lr) * done;
}

}  // namespace

ScheduleKind schedule_kind(const std::string& name)
{
    if (name == "constant") { return ScheduleKind::constant; }
    if (name == "cosine") { return ScheduleKind::cosine; }
    if (name == "wsd") { return ScheduleKind::wsd; }
    throw ConfigError(fmt::format("unknown schedule '{}'. known: constant cosine wsd", name));
}

void validate_lr_schedule(const LrSchedule& schedule)
{
    VALIDATE(schedule.lr >= 0 && schedule.min_lr >= 0 && schedule.min_lr <= schedule.lr, ConfigError,
             "min-lr {} is not between 0 and lr {}", schedule.min_lr, schedule.lr);
    VALIDATE(schedule.warmup_steps >= 0 && schedule.decay_steps >= 0, ConfigError,
             "warmup {} and decay {} must not be negative (steps)", schedule.warmup_steps, schedule.decay_steps);
    const std::int64_t decay = schedule.kind == ScheduleKind::wsd ? schedule.decay_steps : 0;
    VALIDATE(schedule.warmup_steps + decay <= schedule.total_steps, ConfigError,
             "warmup {} + decay {} steps exceed the run's {} steps. shorten one of them", schedule.warmup_steps, decay,
             schedule.total_steps);
}

double learning_rate(const LrSchedule& schedule, std::int64_t step)
{
    if (step <= schedule.warmup_steps)
    {
        return schedule.lr * static_cast<double>(step) / static_cast<double>(schedule.warmup_steps);
    }
    if (schedule.kind == ScheduleKind::constant) { return schedule.lr; }
    if (schedule.kind == ScheduleKind::wsd && schedule.decay_steps == 0) { return schedule.lr; }
    if (step >= schedule.total_steps) { return schedule.min_lr; }
    return schedule.kind == ScheduleKind::cosine ? cosine_rate(schedule, step) : wsd_rate(schedule, step);
}

}  // namespace plimsoll::nn
