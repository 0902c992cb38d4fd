#include "nn/train_step.hpp"

#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "engine/recorder.hpp"
#include "nn/ops/tensor_view.hpp"
#include "plan/step_program.hpp"

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
    enum Slot { loss, cross_entropy, count, squares, stop, clock, num_slots };
    static_assert(num_slots == num_agreed_values, "the plan speaks of as many");
    std::array<double, num_slots> values{};

    void reduce(Communicator& world, Stream& stream)
    {
        const OpScope scope(PlanOp::reduce);
        BufferView view;
        view.data = values.data();
        view.dtype = Dtype::f64;
        view.count = num_slots;
        world.all_reduce(view, ReduceOp::sum, stream).wait(stream);
    }
};

/// One step's micro-batches of one stage, from token to gradient: what is alive between the actions of the schedule.
class StageRun
{
  public:
    StageRun(Model& model, UnitUses& units, RankGroups& groups, const OpContext& ctx, double scale, StepTimes& times)
        : model_(model), units_(units), groups_(groups), ctx_(ctx), scale_(scale), times_(times)
    {
    }

    using ReadTokens = std::function<void(std::int64_t first_sample, TokenBatch&)>;
    using FirstSample = std::function<std::int64_t(std::int64_t micro_batch)>;

    ScheduleCallbacks callbacks(const FirstSample& first_sample, const ReadTokens& read_tokens)
    {
        ScheduleCallbacks on;
        on.recv_activation = [this](const Action& action)
        {
            set_recorded_phase(StepPhase::forward, action.micro_batch);
            recv_activation(alive_[action.micro_batch]);
        };
        on.forward = [this, first_sample, read_tokens](const Action& action)
        {
            set_recorded_phase(StepPhase::forward, action.micro_batch);
            MicroBatch& slot = alive_[action.micro_batch];
            slot.first_sample = first_sample(action.micro_batch);
            forward(slot, read_tokens);
        };
        on.send_activation = [this](const Action& action) { send_activation(alive_.at(action.micro_batch)); };
        on.recv_gradient = [this](const Action& action)
        {
            set_recorded_phase(StepPhase::backward, action.micro_batch);
            recv_gradient(alive_.at(action.micro_batch));
        };
        on.backward = [this](const Action& action)
        {
            set_recorded_phase(StepPhase::backward, action.micro_batch);
            backward(action.micro_batch);
        };
        on.backward_input = [this](const Action& action)
        {
            set_recorded_phase(StepPhase::backward, action.micro_batch);
            backward_input(alive_.at(action.micro_batch));
        };
        on.backward_weight = [this](const Action& action)
        {
            set_recorded_phase(StepPhase::backward, action.micro_batch);
            backward_weight(action.micro_batch);
        };
        on.send_gradient = [this](const Action&) { send_gradient(); };
        on.after_action = [this](const Action&) { groups_.pp->progress(); };
        return on;
    }

    /// @pre the schedule has run to its end
    LossSums finish()
    {
        gradient_sent_.wait(*ctx_.stream);
        sent_dx_ND_ = at::Tensor();
        ENSURE(alive_.empty());
        return sums_;
    }

  private:
    /// Between the forward and the (whole) backward of one micro-batch; the state looks into the batch's memory.
    struct MicroBatch
    {
        std::int64_t first_sample = 0;
        TokenBatch batch;
        at::Tensor x_ND;   ///< received, not yet used
        at::Tensor y_ND;   ///< belongs to the send until its gradient comes back
        at::Tensor dy_ND;
        Work sent;
        ForwardState state;
        BackwardPending pending;
    };

    std::int64_t num_tokens() const { return ctx_.batch * ctx_.seq_len; }
    std::int64_t stage() const { return groups_.pp->rank(); }

    void recv_activation(MicroBatch& slot)
    {
        const OpScope scope(PlanOp::pipeline);
        slot.x_ND = model_.make_activation(num_tokens(), "x");
        groups_.pp->recv(buffer_view(slot.x_ND), stage() - 1, *ctx_.stream).wait(*ctx_.stream);
        clock_.lap(times_.pipeline);
    }

    void forward(MicroBatch& slot, const ReadTokens& read_tokens)
    {
        ctx_.first_sample = slot.first_sample;
        TokenTensors tokens;
        if (model_.is(StageEnd::first) || model_.is(StageEnd::last))
        {
            read_tokens(slot.first_sample, slot.batch);
            tokens = token_tensors(slot.batch);
        }
        clock_.lap(times_.data);
        TrainForward done = model_.forward(ctx_, tokens, scale_, std::move(slot.x_ND), &units_);
        sums_ += done.sums;
        slot.y_ND = std::move(done.y_ND);
        slot.state = std::move(done.state);
        clock_.lap(times_.forward);
    }

    void send_activation(MicroBatch& slot)
    {
        const OpScope scope(PlanOp::pipeline);
        slot.sent = groups_.pp->send(buffer_view(slot.y_ND), stage() + 1, *ctx_.stream);
        clock_.lap(times_.pipeline);
    }

    void recv_gradient(MicroBatch& slot)
    {
        const OpScope scope(PlanOp::pipeline);
        // The next stage made this gradient from the activation: its send is complete.
        slot.sent.wait(*ctx_.stream);
        slot.y_ND = at::Tensor();
        slot.dy_ND = model_.make_activation(num_tokens(), "dy");
        groups_.pp->recv(buffer_view(slot.dy_ND), stage() + 1, *ctx_.stream).wait(*ctx_.stream);
        clock_.lap(times_.pipeline);
    }

    void backward(std::int64_t micro_batch)
    {
        const auto found = alive_.find(micro_batch);
        ENSURE(found != alive_.end());
        ctx_.first_sample = found->second.first_sample;
        dx_ND_ = model_.backward(ctx_, std::move(found->second.state), std::move(found->second.dy_ND), &units_);
        alive_.erase(found);
        clock_.lap(times_.backward);
    }

    void backward_input(MicroBatch& slot)
    {
        InputBackward done = model_.backward_input(ctx_, std::move(slot.state), std::move(slot.dy_ND), &units_);
        dx_ND_ = std::move(done.dx_ND);
        slot.pending = std::move(done.pending);
        clock_.lap(times_.backward);
    }

    void backward_weight(std::int64_t micro_batch)
    {
        const auto found = alive_.find(micro_batch);
        ENSURE(found != alive_.end());
        model_.backward_weight(ctx_, std::move(found->second.pending), &units_);
        alive_.erase(found);
        clock_.lap(times_.backward);
    }

    void send_gradient()
    {
        const OpScope scope(PlanOp::pipeline);
        gradient_sent_.wait(*ctx_.stream);
        sent_dx_ND_ = std::move(dx_ND_);
        gradient_sent_ = groups_.pp->send(buffer_view(sent_dx_ND_), stage() - 1, *ctx_.stream);
        clock_.lap(times_.pipeline);
    }

    Model& model_;
    UnitUses& units_;
    RankGroups& groups_;
    OpContext ctx_;
    double scale_;
    StepTimes& times_;
    PhaseClock clock_;
    std::map<std::int64_t, MicroBatch> alive_;
    at::Tensor dx_ND_;
    at::Tensor sent_dx_ND_; ///< belongs to gradient_sent_
    Work gradient_sent_;
    LossSums sums_;
};

}  // namespace

TrainStep::TrainStep(Model& model, ShardedParams& params, RankGroups& groups, StepSettings settings, BatchSource source)
    : model_(model), params_(params), groups_(groups), settings_(settings), source_(std::move(source)),
      pipeline_(make_schedule(params.layout().schedule, groups.pp->size(),
                              settings.global_batch / (settings.micro_batch * groups.dp_size()),
                              params.layout().virtual_stages)),
      reducer_(params.flat(), params.layout(), groups),
      units_(params, reducer_,
             UnitOrder(params.flat(), params.layout(), uses_of_step(params.flat(), pipeline_, groups.pp->rank())), stream_)
{
    validate_lr_schedule(settings_.schedule);
}

LossSums TrainStep::accumulate_gradients(std::int64_t step, std::int64_t consumed, StepTimes& times)
{
    const std::int64_t dp = groups_.dp_size(), dp_rank = groups_.dp_rank();
    OpContext ctx;
    ctx.stream = &stream_;
    ctx.tp = groups_.tp.get();
    ctx.batch = settings_.micro_batch;
    ctx.seq_len = settings_.seq_len;
    ctx.dropout = settings_.dropout;
    ctx.seed = settings_.seed;
    ctx.step = step;
    StageRun run(model_, units_, groups_, ctx, 1.0 / static_cast<double>(settings_.global_batch * settings_.seq_len), times);
    const auto first_sample = [&](std::int64_t micro_batch)
    { return consumed + (micro_batch * dp + dp_rank) * settings_.micro_batch; };
    const auto read_tokens = [&](std::int64_t first, TokenBatch& batch) { source_(first, settings_.micro_batch, batch); };
    run_schedule(pipeline_, groups_.pp->rank(), run.callbacks(first_sample, read_tokens));
    const LossSums sums = run.finish();
    PhaseClock clock;
    set_recorded_phase(StepPhase::reduce, -1);
    units_.finish();
    clock.lap(times.reduce);
    return sums;
}

double TrainStep::reduce_gradients()
{
    const OpScope scope(PlanOp::reduce);
    set_recorded_phase(StepPhase::reduce, -1);
    double squares = 0;
    for (std::int64_t u = 0; u < params_.num_units(); ++u)
    {
        const BufferView mine = buffer_view(params_.owned(FlatState::grads, u));
        reducer_.finish(u, mine, stream_);
        const std::int64_t first = reducer_.owned(u).begin;
        for (const UnitRange& range : reducer_.norm_ranges(u))
        {
            squares += sum_of_squares(mine.slice(range.begin - first, range.end - range.begin));
        }
    }
    return squares;
}

void TrainStep::update(double grad_scale, double lr, std::int64_t adam_step)
{
    const OpScope scope(PlanOp::update);
    set_recorded_phase(StepPhase::update, -1);
    AdamWStep adam;
    adam.lr = lr;
    adam.beta1 = settings_.beta1;
    adam.beta2 = settings_.beta2;
    adam.eps = settings_.eps;
    adam.weight_decay = settings_.weight_decay;
    adam.step = adam_step;
    adam.grad_scale = grad_scale;
    adam.after = AfterUpdate::zero_gradient;
    const auto is_shared_out = [&](std::int64_t u)
    { return is_sharded(params_.layout(), StateKind::optimizer) && !params_.comes_and_goes(FlatState::params, u); };
    for (std::int64_t u = 0; u < params_.num_units(); ++u)
    {
        const FlatUnit& unit = params_.flat().units[static_cast<std::size_t>(u)];
        const UnitRange mine = reducer_.owned(u);
        const BufferView param = buffer_view(params_.owned(FlatState::params, u));
        adamw_update_unit(adam, unit, mine.begin, mine.end, buffer_view(params_.owned(FlatState::master, u)),
                          buffer_view(params_.owned(FlatState::grads, u)), buffer_view(params_.owned(FlatState::exp_avg, u)),
                          buffer_view(params_.owned(FlatState::exp_avg_sq, u)),
                          params_.keeps_master() ? param : BufferView());
        zero_rest(u, mine);
        if (is_shared_out(u)) { reducer_.start_gather(u, param, buffer_view(params_.buffer(FlatState::params, u)), stream_); }
    }
    for (std::int64_t u = 0; u < params_.num_units(); ++u)
    {
        if (is_shared_out(u)) { reducer_.wait_gather(u, stream_); }
    }
}

/// The update zeroes the gradients that it reads; other ranks' shards hold partial sums.
void TrainStep::zero_rest(std::int64_t unit, const UnitRange& updated)
{
    if (params_.comes_and_goes(FlatState::grads, unit)) { return; }
    at::Tensor grads = params_.buffer(FlatState::grads, unit);
    if (updated.begin > 0) { grads.narrow(0, 0, updated.begin).zero_(); }
    if (updated.end < grads.numel()) { grads.narrow(0, updated.end, grads.numel() - updated.end).zero_(); }
}

StepResult TrainStep::run(std::int64_t step, std::int64_t consumed, std::int64_t adam_step, const StepSignals& signals)
{
    StepResult result;
    result.lr = learning_rate(settings_.schedule, step);
    const LossSums mine = accumulate_gradients(step, consumed, result.times);

    PhaseClock clock;
    Agreement agreement;
    agreement.values[Agreement::squares] = reduce_gradients();
    // All ranks of a tp group have the same sums: one of them speaks.
    const bool speaks = groups_.tp->rank() == 0;
    agreement.values[Agreement::loss] = speaks ? mine.loss : 0.0;
    agreement.values[Agreement::cross_entropy] = speaks ? mine.cross_entropy : 0.0;
    agreement.values[Agreement::count] = speaks ? static_cast<double>(mine.count) : 0.0;
    agreement.values[Agreement::stop] = signals.stop_requested() ? 1 : 0;
    agreement.values[Agreement::clock] = groups_.world->rank() == 0 ? signals.clock : 0.0;
    agreement.reduce(*groups_.world, stream_);
    result.sums.loss = agreement.values[Agreement::loss];
    result.sums.cross_entropy = agreement.values[Agreement::cross_entropy];
    result.sums.count = static_cast<std::int64_t>(agreement.values[Agreement::count]);
    result.stop_requested = agreement.values[Agreement::stop] > 0;
    result.clock = agreement.values[Agreement::clock];
    clock.lap(result.times.reduce);

    const double nominal = static_cast<double>(settings_.global_batch * settings_.seq_len);
    const double to_mean = result.sums.count > 0 ? nominal / static_cast<double>(result.sums.count) : 0.0;
    result.grad_norm = std::sqrt(agreement.values[Agreement::squares]) * to_mean;
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
