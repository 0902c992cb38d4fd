#include "nn/train_step.hpp"

#include <array>
#include <chrono>
#include <cmath>
#include <map>

#include "base/error.hpp"
#include "nn/ops/tensor_view.hpp"

namespace plimsoll::nn
{
namespace
{

/// Adds the time since the last lap to a phase.
class PhaseClock
{
  public:
    void lap(double& phase)
    {
        const auto now = std::chrono::steady_clock::now();
        phase += std::chrono::duration<double>(now - last_).count();
        last_ = now;
    }

  private:
    std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

/// "nan", "inf" or "-inf": the sign of a NaN says nothing.
std::string not_finite_text(double value) { return std::isnan(value) ? "nan" : fmt::format("{}", value); }

/// What all ranks agree on in a step: sums ride together, so that a step has one small reduction.
struct Agreement
{
    enum Slot { loss, count, stop, num_slots };
    std::array<double, num_slots> values{};

    void reduce(Communicator& world, Stream& stream)
    {
        BufferView view;
        view.data = values.data();
        view.dtype = Dtype::f64;
        view.count = num_slots;
        world.all_reduce(view, ReduceOp::sum, stream).synchronize();
    }
};

}  // namespace

RankGroups make_single_rank_groups()
{
    RankGroups groups;
    groups.dp = make_self_communicator("dp");
    groups.tp = make_self_communicator("tp");
    groups.world = make_self_communicator("world");
    return groups;
}

TrainStep::TrainStep(Model& model, ShardedParams& params, RankGroups& groups, StepSettings settings, BatchSource source)
    : model_(model), params_(params), groups_(groups), settings_(settings), source_(std::move(source)),
      pipeline_(make_single_stage_schedule(settings.global_batch / (settings.micro_batch * groups.dp->size())))
{
    validate_lr_schedule(settings_.schedule);
}

LossSums TrainStep::accumulate_gradients(std::int64_t step, std::int64_t consumed, StepTimes& times)
{
    const std::int64_t dp = groups_.dp->size(), dp_rank = groups_.dp->rank();
    const double scale = 1.0 / static_cast<double>(settings_.global_batch * settings_.seq_len);
    LossSums sums;
    // A micro-batch between its forward and its backward; the state looks into the batch's memory.
    struct InFlight
    {
        TokenBatch batch;
        ForwardState state;
    };
    std::map<std::int64_t, InFlight> in_flight;
    PhaseClock clock;

    OpContext ctx;
    ctx.stream = &stream_;
    ctx.tp = groups_.tp.get();
    ctx.batch = settings_.micro_batch;
    ctx.seq_len = settings_.seq_len;
    ctx.step = step;

    ScheduleCallbacks callbacks;
    callbacks.forward = [&](const Action& action)
    {
        const std::int64_t first = consumed + (action.micro_batch * dp + dp_rank) * settings_.micro_batch;
        InFlight& slot = in_flight[action.micro_batch];
        source_(first, settings_.micro_batch, slot.batch);
        ctx.first_sample = first;
        clock.lap(times.data);
        TrainForward done = model_.forward(ctx, token_tensors(slot.batch), scale);
        sums += done.sums;
        slot.state = std::move(done.state);
        clock.lap(times.forward);
    };
    callbacks.backward = [&](const Action& action)
    {
        const auto found = in_flight.find(action.micro_batch);
        ENSURE(found != in_flight.end());
        model_.backward(ctx, std::move(found->second.state));
        in_flight.erase(found);
        clock.lap(times.backward);
    };
    run_schedule(pipeline_, 0, callbacks);
    return sums;
}

double TrainStep::reduce_gradients()
{
    const bool sharded = params_.layout().zero_stage >= 1;
    const std::int64_t dp = groups_.dp->size(), dp_rank = groups_.dp->rank();
    double squares = 0;
    for (std::int64_t u = 0; u < params_.num_units(); ++u)
    {
        const FlatUnit& unit = params_.flat().units[static_cast<std::size_t>(u)];
        const BufferView grads = buffer_view(params_.buffer(FlatState::grads, u));
        if (!sharded)
        {
            groups_.dp->all_reduce(grads, ReduceOp::sum, stream_).synchronize();
            squares += sum_of_squares(grads);
            continue;
        }
        EXPECT(unit.shard_elements * dp == unit.num_elements);
        const BufferView shard = grads.slice(dp_rank * unit.shard_elements, unit.shard_elements);
        groups_.dp->reduce_scatter(grads, shard, stream_).synchronize();
        squares += sum_of_squares(shard);
    }
    return squares;
}

void TrainStep::update(double grad_scale, double lr, std::int64_t adam_step)
{
    const bool sharded = params_.layout().zero_stage >= 1;
    const std::int64_t dp_rank = groups_.dp->rank();
    AdamWStep adam;
    adam.lr = lr;
    adam.beta1 = settings_.beta1;
    adam.beta2 = settings_.beta2;
    adam.eps = settings_.eps;
    adam.weight_decay = settings_.weight_decay;
    adam.step = adam_step;
    adam.grad_scale = grad_scale;
    adam.after = AfterUpdate::zero_gradient;
    for (std::int64_t u = 0; u < params_.num_units(); ++u)
    {
        const FlatUnit& unit = params_.flat().units[static_cast<std::size_t>(u)];
        const std::int64_t begin = sharded ? dp_rank * unit.shard_elements : 0;
        const std::int64_t end = sharded ? begin + unit.shard_elements : unit.num_elements;
        const BufferView param = buffer_view(params_.buffer(FlatState::params, u));
        adamw_update_unit(adam, unit, begin, end, param, buffer_view(params_.buffer(FlatState::grads, u)),
                          buffer_view(params_.buffer(FlatState::exp_avg, u)),
                          buffer_view(params_.buffer(FlatState::exp_avg_sq, u)));
        if (sharded) { groups_.dp->all_gather(param.slice(begin, end - begin), param, stream_).synchronize(); }
    }
}

StepResult TrainStep::run(std::int64_t step, std::int64_t consumed, std::int64_t adam_step,
                          const std::function<bool()>& stop_requested)
{
    StepResult result;
    result.lr = learning_rate(settings_.schedule, step);
    const LossSums mine = accumulate_gradients(step, consumed, result.times);

    PhaseClock clock;
    double squares = reduce_gradients();
    Agreement agreement;
    agreement.values[Agreement::loss] = mine.loss;
    agreement.values[Agreement::count] = static_cast<double>(mine.count);
    agreement.values[Agreement::stop] = stop_requested() ? 1 : 0;
    agreement.reduce(*groups_.world, stream_);
    result.sums.loss = agreement.values[Agreement::loss];
    result.sums.count = static_cast<std::int64_t>(agreement.values[Agreement::count]);
    result.stop_requested = agreement.values[Agreement::stop] > 0;
    clock.lap(result.times.reduce);

    const double nominal = static_cast<double>(settings_.global_batch * settings_.seq_len);
    const double to_mean = result.sums.count > 0 ? nominal / static_cast<double>(result.sums.count) : 0.0;
    result.grad_norm = std::sqrt(squares) * to_mean;
    VALIDATE(std::isfinite(result.sums.loss), NumericError,
             "loss is {} at step {} (lr {:.3g}). lower lr, raise warmup, or look at the data of samples {} to {}",
             not_finite_text(result.loss()), step, result.lr, consumed, consumed + settings_.global_batch - 1);
    VALIDATE(std::isfinite(result.grad_norm), NumericError,
             "gradient norm is {} at step {} (loss {:.4f}, lr {:.3g}). lower lr or raise warmup",
             not_finite_text(result.grad_norm), step, result.loss(), result.lr);
    result.updated = result.sums.count > 0;
    if (result.updated)
    {
        update(to_mean * clip_factor(result.grad_norm, settings_.clip), result.lr, adam_step);
    }
    else { params_.zero_grads(); }
    clock.lap(result.times.optimizer);
    return result;
}

}  // namespace plimsoll::nn
