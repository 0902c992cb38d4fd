#include "layout/train_plan.hpp"

#include <cmath>

#include "base/error.hpp"

namespace plimsoll
{
namespace
{

std::int64_t steps_of_tokens(double tokens, std::int64_t tokens_per_step)
{
    return static_cast<std::int64_t>(std::ceil(tokens / static_cast<double>(tokens_per_step)));
}

std::int64_t share_in_steps(const Span& span, const TrainPlan& plan, const char* key)
{
    switch (span.unit)
    {
        case Span::Unit::never: return 0;
        case Span::Unit::steps: return static_cast<std::int64_t>(span.amount);
        case Span::Unit::percent:
            return static_cast<std::int64_t>(std::llround(span.amount / 100 * static_cast<double>(plan.total_steps)));
        case Span::Unit::tokens: return steps_of_tokens(span.amount, plan.tokens_per_step);
        case Span::Unit::seconds: break;
    }
    throw ConfigError(fmt::format("{} cannot be a time (the learning rate would depend on the machine). give steps, "
                                  "a percentage or tokens", key));
}

Cadence cadence_of(const Span& span, const TrainPlan& plan, const char* key)
{
    Cadence cadence;
    if (span.unit == Span::Unit::seconds)
    {
        cadence.seconds = span.amount;
        return cadence;
    }
    cadence.steps = share_in_steps(span, plan, key);
    if (span.unit != Span::Unit::never && span.amount > 0 && cadence.steps == 0) { cadence.steps = 1; }
    return cadence;
}

}  // namespace

TrainPlan make_train_plan(const RunConfig& config, std::int64_t samples_per_epoch)
{
    TrainPlan plan;
    const std::int64_t batch = config.layout.global_batch;
    plan.tokens_per_step = batch * config.data.seq_len;
    EXPECT(plan.tokens_per_step > 0);
    if (config.train.steps > 0) { plan.total_steps = config.train.steps; }
    else if (config.train.tokens > 0)
    {
        plan.total_steps = config.train.tokens / plan.tokens_per_step;
        VALIDATE(plan.total_steps > 0, ConfigError,
                 "train.tokens {} is less than one step (global-batch {} x seq-len {} = {} tokens)", config.train.tokens,
                 batch, config.data.seq_len, plan.tokens_per_step);
    }
    else
    {
        plan.total_steps = static_cast<std::int64_t>(
            std::floor(config.train.epochs * static_cast<double>(samples_per_epoch) / static_cast<double>(batch)));
        VALIDATE(plan.total_steps > 0, ConfigError,
                 "train.epochs {} is less than one step ({} samples in an epoch, global-batch {})", config.train.epochs,
                 samples_per_epoch, batch);
    }
    plan.warmup_steps = share_in_steps(config.train.warmup, plan, "train.warmup");
    if (config.train.schedule == "wsd") { plan.decay_steps = share_in_steps(config.train.decay, plan, "train.decay"); }
    VALIDATE(plan.warmup_steps + plan.decay_steps <= plan.total_steps, ConfigError,
             "warmup {} + decay {} = {} steps is longer than the run ({} steps)", plan.warmup_steps, plan.decay_steps,
             plan.warmup_steps + plan.decay_steps, plan.total_steps);
    plan.eval = cadence_of(config.eval.every, plan, "eval.every");
    for (const EvalSet& set : config.eval.sets) { plan.eval_sets.push_back(cadence_of(set.every, plan, "eval.NAME.every")); }
    plan.checkpoint = cadence_of(config.checkpoint.every, plan, "checkpoint.every");
    return plan;
}

}  // namespace plimsoll
