#include "nn/train_step.hpp"

#include <ATen/ops/empty.h>

#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <utility>

#include "base/error.hpp"
#include "engine/recorder.hpp"
#include "nn/cpu_allocator.hpp"
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
    StageRun(Model& model, UnitUses& units, RankGroups& groups, const PipelineSchedule& schedule, SendOrder& send_order,
             const OpContext& ctx, double scale, bool document_masks, StepTimes& times)
        : model_(model), units_(units), groups_(groups), schedule_(schedule), send_order_(send_order), ctx_(ctx), scale_(scale),
          document_masks_(document_masks), times_(times)
    {
    }

    using ReadTokens = std::function<void(std::int64_t first_sample, TokenBatch&)>;
    using FirstSample = std::function<std::int64_t(std::int64_t micro_batch)>;

    ScheduleCallbacks callbacks(const FirstSample& first_sample, const ReadTokens& read_tokens)
    {
        const auto in = [](StepPhase phase, auto body)
        {
            return [phase, body](const Action& action)
            {
                set_recorded_phase(phase, action.micro_batch);
                body(action);
            };
        };
        ScheduleCallbacks on;
        on.recv_activation = in(StepPhase::forward, [this](const Action& action)
                                { alive_[place_of(action)].x_ND = receive(Received::activation, action); });
        on.forward = in(StepPhase::forward,
                        [this, first_sample, read_tokens](const Action& action)
                        {
                            alive_[place_of(action)].first_sample = first_sample(action.micro_batch);
                            forward(action, read_tokens);
                        });
        on.recv_gradient = in(StepPhase::backward, [this](const Action& action)
                              { alive_.at(place_of(action)).dy_ND = receive(Received::gradient, action); });
        on.backward = in(StepPhase::backward, [this](const Action& action) { backward(action); });
        on.backward_input = in(StepPhase::backward, [this](const Action& action) { backward_input(action); });
        on.backward_weight = in(StepPhase::backward, [this](const Action& action) { backward_weight(action); });
        on.send_activation = on.send_gradient = [this](const Action& action) { send(action); };
        on.after_action = [this](const Action&)
        {
            for (const Action& sent : send_order_.after()) { wait_for(sent); }
            groups_.pp->progress();
        };
        return on;
    }

    /// @pre the schedule has run to its end
    LossSums finish()
    {
        for (const Action& sent : send_order_.finish()) { wait_for(sent); }
        ENSURE(alive_.empty() && messages_.empty());
        return sums_;
    }

  private:
    /// Micro-batch and chunk.
    using Place = std::pair<std::int64_t, std::int64_t>;
    static Place place_of(const Action& action) { return {action.micro_batch, action.chunk}; }

    /// Between the forward and the (whole) backward of one micro-batch in one chunk; the state looks into the batch's memory.
    struct MicroBatch
    {
        std::int64_t first_sample = 0;
        TokenBatch batch;
        at::Tensor x_ND;   ///< from the chunk before, not yet used
        at::Tensor dy_ND;  ///< from the chunk behind, not yet used
        ForwardState state;
        BackwardPending pending;
    };

    /// To another stage; `work` goes before the buffer that belongs to it.
    struct Message
    {
        at::Tensor buffer_ND;
        Work work;
    };
    using MessageKey = std::pair<ActionKind, Place>;

    const StageChunk& chunk_of(const Action& action) const { return model_.chunks()[static_cast<std::size_t>(action.chunk)]; }
    std::int64_t stage() const { return groups_.pp->rank(); }

    at::Tensor receive(Received what, const Action& action)
    {
        at::Tensor received_ND = model_.make_received(what, ctx_.stream_tokens(), action.chunk);
        const OpScope scope(PlanOp::pipeline);
        groups_.pp->recv(buffer_view(received_ND), message_of(schedule_, stage(), action).from, *ctx_.stream).wait(*ctx_.stream);
        clock_.lap(times_.pipeline);
        return received_ND;
    }

    void send(const Action& action)
    {
        const OpScope scope(PlanOp::pipeline);
        Message& message = messages_.at({action.kind, place_of(action)});
        message.work = groups_.pp->send(buffer_view(message.buffer_ND), message_of(schedule_, stage(), action).to, *ctx_.stream);
        clock_.lap(times_.pipeline);
    }

    void wait_for(const Action& sent)
    {
        const OpScope scope(PlanOp::pipeline);
        const auto message = messages_.find({sent.kind, place_of(sent)});
        ENSURE(message != messages_.end());
        message->second.work.wait(*ctx_.stream);
        messages_.erase(message);
        clock_.lap(times_.pipeline);
    }

    /// What a chunk made for the one behind it.
    void pass_on(const Action& action, at::Tensor y_ND)
    {
        const Neighbour behind = chunk_of(action).behind;
        if (behind == Neighbour::here) { alive_[{action.micro_batch, action.chunk + 1}].x_ND = std::move(y_ND); }
        if (behind == Neighbour::elsewhere)
        {
            messages_[{ActionKind::send_activation, place_of(action)}].buffer_ND = std::move(y_ND);
        }
    }

    /// For the one before it.
    void pass_back(const Action& action, at::Tensor dx_ND)
    {
        const Neighbour before = chunk_of(action).before;
        if (before == Neighbour::here) { alive_.at({action.micro_batch, action.chunk - 1}).dy_ND = std::move(dx_ND); }
        if (before == Neighbour::elsewhere)
        {
            messages_[{ActionKind::send_gradient, place_of(action)}].buffer_ND = std::move(dx_ND);
        }
    }

    /// What follows is of this micro-batch.
    void enter(const MicroBatch& slot)
    {
        ctx_.first_sample = slot.first_sample;
        ctx_.document_starts = document_masks_ ? &slot.batch.document_starts : nullptr;
    }

    void forward(const Action& action, const ReadTokens& read_tokens)
    {
        MicroBatch& slot = alive_.at(place_of(action));
        TokenTensors tokens;
        if (chunk_of(action).is_first() || chunk_of(action).is_last() || document_masks_)
        {
            read_tokens(slot.first_sample, slot.batch);
            tokens = token_tensors(slot.batch);
        }
        enter(slot);
        clock_.lap(times_.data);
        TrainForward done = model_.forward(ctx_, tokens, scale_, std::move(slot.x_ND), &units_, action.chunk);
        sums_ += done.sums;
        slot.state = std::move(done.state);
        pass_on(action, std::move(done.y_ND));
        clock_.lap(times_.forward);
    }

    void backward(const Action& action)
    {
        const auto found = alive_.find(place_of(action));
        ENSURE(found != alive_.end());
        MicroBatch& slot = found->second;
        enter(slot);
        pass_back(action, model_.backward(ctx_, std::move(slot.state), std::move(slot.dy_ND), &units_, action.chunk));
        alive_.erase(found);
        clock_.lap(times_.backward);
    }

    void backward_input(const Action& action)
    {
        MicroBatch& slot = alive_.at(place_of(action));
        enter(slot);
        InputBackward done = model_.backward_input(ctx_, std::move(slot.state), std::move(slot.dy_ND), &units_, action.chunk);
        slot.pending = std::move(done.pending);
        pass_back(action, std::move(done.dx_ND));
        clock_.lap(times_.backward);
    }

    void backward_weight(const Action& action)
    {
        const auto found = alive_.find(place_of(action));
        ENSURE(found != alive_.end());
        enter(found->second);
        model_.backward_weight(ctx_, std::move(found->second.pending), &units_, action.chunk);
        alive_.erase(found);
        clock_.lap(times_.backward);
    }

    Model& model_;
    UnitUses& units_;
    RankGroups& groups_;
    const PipelineSchedule& schedule_;
    SendOrder& send_order_;
    OpContext ctx_;
    double scale_;
    bool document_masks_;
    StepTimes& times_;
    PhaseClock clock_;
    std::map<Place, MicroBatch> alive_;
    std::map<MessageKey, Message> messages_;
    LossSums sums_;
};

}  // namespace

TrainStep::TrainStep(Model& model, ShardedParams& params, RankGroups& groups, StepSettings settings, BatchSource source)
    : model_(model), params_(params), groups_(groups), settings_(settings), source_(std::move(source)),
      pipeline_(make_schedule(params.layout().schedule, groups.pp->size(),
                              settings.global_batch / (settings.micro_batch * groups.dp_size()),
                              params.layout().virtual_stages)),
      send_order_(pipeline_, groups.pp->rank()), reducer_(params.flat(), params.layout(), groups),
      units_(params, reducer_,
             UnitOrder(params.flat(), params.layout(), uses_of_step(params.flat(), pipeline_, groups.pp->rank())), stream_)
{
    validate_lr_schedule(settings_.schedule);
    EXPECT(token_faults(params.layout(), settings_.seq_len).empty());
}

LossSums TrainStep::accumulate_gradients(std::int64_t step, std::int64_t consumed, StepTimes& times)
{
    const std::int64_t dp = groups_.dp_size(), dp_rank = groups_.dp_rank();
    OpContext ctx;
    ctx.stream = &stream_;
    ctx.tp = groups_.tp.get();
    ctx.batch = settings_.micro_batch;
    ctx.seq_len = settings_.seq_len;
    ctx.cuts_tokens = params_.layout().cuts_tokens(ctx.tokens());
    ctx.dropout = settings_.dropout;
    ctx.seed = settings_.seed;
    ctx.step = step;
    StageRun run(model_, units_, groups_, pipeline_, send_order_, ctx,
                 1.0 / static_cast<double>(settings_.global_batch * settings_.seq_len), settings_.document_masks, times);
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
    std::vector<BufferView> mine;
    for (std::int64_t u = 0; u < params_.num_units(); ++u) { mine.push_back(buffer_view(params_.owned(FlatState::grads, u))); }
    {
        const at::Tensor room = at::empty({reducer_.room_elements()}, at::TensorOptions().dtype(params_.sum_dtype()));
        name_tensor(room, "partial sums", MemoryUse::communication);
        reducer_.finish(mine, buffer_view(room), stream_);
    }
    double squares = 0;
    for (std::int64_t u = 0; u < params_.num_units(); ++u)
    {
        const std::int64_t first = reducer_.owned(u).begin;
        for (const UnitRange& range : reducer_.norm_ranges(u))
        {
            squares += sum_of_squares(mine[static_cast<std::size_t>(u)].slice(range.begin - first, range.end - range.begin));
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
