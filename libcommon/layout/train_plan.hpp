#pragma once
/// What a run file's lengths and spans mean in steps, once the data is known. Pure.

#include <cstdint>
#include <vector>

#include "layout/run_config.hpp"

namespace plimsoll
{

/// How often something happens; both 0: never.
struct Cadence
{
    std::int64_t steps = 0;
    double seconds = 0;

    /// Whether it is due after `step` finished steps, `seconds_since` after the last time.
    bool due(std::int64_t step, double seconds_since) const
    {
        return (steps > 0 && step % steps == 0) || (seconds > 0 && seconds_since >= seconds);
    }
    bool never() const { return steps == 0 && seconds == 0; }
};

struct TrainPlan
{
    std::int64_t tokens_per_step = 0; ///< global batch x sequence length
    std::int64_t total_steps = 0;
    std::int64_t warmup_steps = 0;
    std::int64_t decay_steps = 0;     ///< WSD only
    Cadence eval;
    std::vector<Cadence> eval_sets;   ///< of config.eval.sets
    Cadence checkpoint;
};

/// Resolves the run's length (tokens and epochs round down to whole steps) and its spans. `samples_per_epoch`: samples of
/// seq-len that the data holds. @throws ConfigError: a length of less than one step, a warm-up in minutes, warm-up and decay
/// longer than the run.
TrainPlan make_train_plan(const RunConfig& config, std::int64_t samples_per_epoch);

}  // namespace plimsoll
