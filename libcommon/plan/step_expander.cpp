#include "plan/step_expander.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <tuple>
#include <utility>

#include "base/error.hpp"
#include "layout/partial_sums.hpp"
#include "layout/precision.hpp"
#include "layout/send_order.hpp"
#include "plan/op_scripts.hpp"
#include "plan/unit_order.hpp"

namespace plimsoll
{

class StepExpander::Impl
{
  public:
    Impl(const StepInputs& inputs, std::int64_t batch, const EventSink& sink)
        : inputs_(inputs), stage_(inputs.coordinate[MeshAxis::pp]), chunks_(stage_chunks(inputs.model, inputs.layout, stage_)),
          table_(inputs.model, make_local_shapes(inputs.model, inputs.layout, inputs.coordinate, inputs.policies, batch),
                 inputs.policies.dtype),
          scripts_(inputs.model, table_), sink_(sink)
    {
    }

    void run(const FlatLayout& flat, const PipelineSchedule& schedule)
    {
        follow(flat, uses_of_step(flat, schedule, stage_));
        const std::vector<Action>& actions = schedule.actions(stage_);
        split_backward_ =
            std::any_of(actions.begin(), actions.end(), [](const Action& a) { return a.kind == ActionKind::backward_weight; });
        SendOrder sends(schedule, stage_);
        for (const Action& action : actions)
        {
            micro_batch_ = action.micro_batch;
            chunk_ = action.chunk;
            switch (action.kind)
            {
                case ActionKind::recv_activation: recv_activation(); break;
                case ActionKind::forward: forward(); break;
                case ActionKind::recv_gradient: recv_gradient(); break;
                case ActionKind::backward: backward(); break;
                case ActionKind::backward_input: backward_input(); break;
                case ActionKind::backward_weight: backward_weight(); break;
                case ActionKind::send_activation:
                case ActionKind::send_gradient: send(action); break;
            }
            wait_for(sends.after());
        }
        wait_for(sends.finish());
        ENSURE(sent_.empty());
        micro_batch_ = -1;
        phase_ = StepPhase::reduce;
        unit_actions(order_->finish());
    }

    void all_collectives(const FlatLayout& flat)
    {
        for (chunk_ = 0; chunk_ < inputs_.layout.virtual_stages; ++chunk_)
        {
            if (chunk().is_first()) { replay(scripts_.embedding_forward, -1); }
            replay(scripts_.block_forward, layers().first);
            if (chunk().is_last()) { replay(scripts_.head_step, layers().last); }
            replay(scripts_.block_backward, layers().first);
        }
        chunk_ = 0;
        flat_ = &flat;
        for (std::size_t u = 0; u < flat.units.size(); ++u)
        {
            unit_action({UnitStep::reduce_start, static_cast<std::int64_t>(u)});
        }
        reduce_and_update(flat);
    }

    void reduce_and_update(const FlatLayout& flat)
    {
        phase_ = StepPhase::reduce;
        finish_units(flat);
        collective(PlanOp::reduce, "agreement", CollectiveKind::all_reduce, GroupKind::world, inputs_.layout.world(),
                   num_agreed_values * 8);
        phase_ = StepPhase::update;
        std::vector<std::int64_t> gathers;
        for (const FlatUnit& unit : flat.units) { gathers.push_back(update_unit(unit, flat)); }
        for (std::size_t u = 0; u < gathers.size(); ++u)
        {
            if (gathers[u] < 0) { continue; }
            wait(PlanOp::update, "parameters", CollectiveKind::all_gather, GroupKind::dp,
                 flat.units[u].num_elements * flat.element_bytes, gathers[u]);
        }
    }

    /// As ReplicaCheck while all copies are equal: a digest of all tensors' digests in each group that holds copies.
    void check_replicas(const FlatLayout& flat)
    {
        phase_ = StepPhase::update;
        const ParallelLayout& layout = inputs_.layout;
        const auto gather = [&](GroupKind group, std::int64_t ranks)
        { collective(PlanOp::replicas, "digests", CollectiveKind::all_gather, group, ranks, 8 * ranks); };
        const bool any_whole = std::any_of(flat.units.begin(), flat.units.end(), [&](const FlatUnit& unit)
                                           { return !is_gathered(unit, layout, flat.element_bytes); });
        if (any_whole) { gather(GroupKind::dp, layout.shards()); }
        gather(GroupKind::replicas, layout.replicas());
        gather(GroupKind::tp, layout.tp);
        gather(GroupKind::kv, std::max<std::int64_t>(1, layout.tp / inputs_.model.kv_heads));
        const bool is_end = stage_ == first_stage(layout) || stage_ == last_stage(layout);
        gather(GroupKind::embedding, inputs_.model.tied && is_end && ends_are_apart(layout) ? 2 : 1);
        collective(PlanOp::replicas, "any difference", CollectiveKind::all_reduce, GroupKind::world, layout.world(), 8);
    }

    void validate(const FlatLayout& flat)
    {
        phase_ = StepPhase::validation;
        micro_batch_ = 0;
        follow(flat, uses_of_validation(flat, inputs_.layout, stage_));
        for (chunk_ = 0; chunk_ < inputs_.layout.virtual_stages; ++chunk_) { validate_chunk(); }
        chunk_ = 0;
    }

  private:
    const StageChunk& chunk() const { return chunks_[static_cast<std::size_t>(chunk_)]; }
    const StageRange& layers() const { return chunk().layers; }

    void validate_chunk()
    {
        if (chunk().is_first())
        {
            use([&] { replay(scripts_.embedding_forward, -1); });
        }
        if (chunk().before == Neighbour::elsewhere) { recv_activation(); }
        for (std::int64_t layer = layers().first; layer < layers().last; ++layer)
        {
            use(
                [&]
                {
                    replay(scripts_.block_forward, layer);
                    replay(scripts_.block_drop, layer);
                });
        }
        if (chunk().is_last())
        {
            use([&] { replay(scripts_.head_validate, layers().last); });
        }
        if (chunk().behind != Neighbour::elsewhere) { return; }
        wait_message(start_message(CollectiveKind::send, "y"), CollectiveKind::send, "y");
        free_output();
    }

    void follow(const FlatLayout& flat, std::vector<UnitUse> uses)
    {
        flat_ = &flat;
        made_in_.assign(flat.units.size(), {-1, -1});
        collectives_.assign(flat.units.size(), -1);
        order_.emplace(flat, inputs_.layout, std::move(uses));
    }

    template<class Script>
    void use(const Script& script)
    {
        unit_actions(order_->before());
        script();
        unit_actions(order_->after());
    }

    void unit_actions(const std::vector<UnitAction>& actions)
    {
        for (const UnitAction& action : actions) { unit_action(action); }
    }

    /// As UnitRunner.
    void unit_action(const UnitAction& action)
    {
        const auto u = static_cast<std::size_t>(action.unit);
        const FlatUnit& unit = flat_->units[u];
        const std::int64_t bytes = unit.num_elements * flat_->element_bytes;
        const std::int64_t gradient_bytes = unit.num_elements * sum_bytes(flat_->element_bytes);
        const bool sharded = is_sharded(inputs_.layout, StateKind::optimizer);
        const CollectiveKind sum = sharded ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce;
        switch (action.step)
        {
            case UnitStep::gather_start:
                unit_buffer(EventKind::alloc, u, PlanOp::gather);
                collectives_[u] = start(PlanOp::gather, "parameters", CollectiveKind::all_gather, GroupKind::dp, bytes, unit.layer);
                break;
            case UnitStep::gather_wait:
                wait(PlanOp::gather, "parameters", CollectiveKind::all_gather, GroupKind::dp, bytes, collectives_[u]);
                break;
            case UnitStep::drop_parameters: unit_buffer(EventKind::free, u, PlanOp::gather); break;
            case UnitStep::make_gradients: unit_buffer(EventKind::alloc, u, PlanOp::reduce); break;
            case UnitStep::reduce_start:
                if (inputs_.layout.shards() > 1) { sums_[u] = start(PlanOp::reduce, "gradients", sum, GroupKind::dp, gradient_bytes, unit.layer); }
                break;
            case UnitStep::reduce_wait:
                if (inputs_.layout.shards() > 1) { wait(PlanOp::reduce, "gradients", sum, GroupKind::dp, gradient_bytes, sums_.at(u)); }
                if (inputs_.layout.shards_gradients()) { unit_buffer(EventKind::free, u, PlanOp::reduce); }
                break;
        }
    }

    /// The whole unit's parameters (gather) or gradients (reduce), which come and go.
    void unit_buffer(EventKind kind, std::size_t u, PlanOp op)
    {
        const FlatUnit& unit = flat_->units[u];
        std::int64_t& made_in = made_in_[u][op == PlanOp::gather ? 0 : 1];
        if (kind == EventKind::alloc) { made_in = micro_batch_; }
        StepEvent event;
        event.kind = kind;
        event.op = op;
        event.category = op == PlanOp::gather ? MemoryUse::parameters : MemoryUse::gradients;
        event.name = unit_kind_name(unit.kind);
        event.layer = unit.layer;
        event.bytes = unit.num_elements * (op == PlanOp::gather ? flat_->element_bytes : sum_bytes(flat_->element_bytes));
        const std::int64_t now = std::exchange(micro_batch_, made_in);
        emit(event);
        micro_batch_ = now;
    }

    void replay(const OpScript& script, std::int64_t layer)
    {
        for (StepEvent event : script)
        {
            const bool in_block = event.op >= PlanOp::input_norm && event.op <= PlanOp::mlp;
            if (event.layer == block_input_layer) { name_block_input(event, layer); }
            else if (event.layer == block_gradient_layer) { name_block_gradient(event, layer); }
            else { event.layer = in_block ? layer : -1; }
            if (event.kind == EventKind::start) { event.id = next_id_++; }
            if (event.kind == EventKind::wait) { event.id = next_id_ - 1; }
            emit(event);
        }
    }

    /// The tensor that enters block `layer` (or the head, behind the last one).
    void name_block_input(StepEvent& event, std::int64_t layer) const
    {
        event.layer = layer - 1;
        if (layer > layers().first || chunk().before == Neighbour::here) { return; }
        const PlannedTensor& input = chunk().is_first() ? table_.at(PlanOp::embedding, "y") : table_.at(PlanOp::pipeline, "x");
        event.layer = chunk().is_first() ? -1 : layer;
        event.op = input.op;
        event.name = input.name;
        event.category = input.category;
    }

    /// A planned tensor of a layer.
    struct Named
    {
        const PlannedTensor& tensor;
        std::int64_t layer = -1;
    };

    /// The gradient that enters block `layer` from behind, in the split backward.
    void name_block_gradient(StepEvent& event, std::int64_t layer) const
    {
        const bool from_block = layer + 1 < layers().last || chunk().behind == Neighbour::here;
        const Named gradient = from_block ? Named{table_.at(PlanOp::attention, "dx"), layer + 1} : stream_gradient(chunk_);
        event.layer = gradient.layer;
        event.op = gradient.tensor.op;
        event.name = gradient.tensor.name;
        event.category = gradient.tensor.category;
    }

    /// Where the gradient of the stream began that passes through a chunk.
    Named stream_gradient(std::int64_t number) const
    {
        const StageChunk& of = chunks_[static_cast<std::size_t>(number)];
        switch (of.behind)
        {
            case Neighbour::none: return Named{table_.at(PlanOp::final_norm, "y"), -1};
            case Neighbour::here: return stream_gradient(number + 1);
            case Neighbour::elsewhere: break;
        }
        return Named{table_.at(PlanOp::pipeline, "dy"), of.layers.last - 1};
    }

    void emit(StepEvent& event)
    {
        event.phase = phase_;
        event.micro_batch = micro_batch_;
        sink_(event);
    }

    void tensor(EventKind kind, PlanOp op, const char* name, std::int64_t layer = -1)
    {
        const PlannedTensor& planned = table_.at(op, name);
        StepEvent event;
        event.kind = kind;
        event.op = op;
        event.category = planned.category;
        event.name = planned.name;
        event.layer = layer;
        event.bytes = planned.bytes();
        emit(event);
    }

    std::int64_t start(PlanOp op, const char* name, CollectiveKind kind, GroupKind group, std::int64_t bytes,
                       std::int64_t layer = -1)
    {
        StepEvent event;
        event.kind = EventKind::start;
        event.op = op;
        event.name = name;
        event.collective = kind;
        event.group = group;
        event.bytes = bytes;
        event.layer = layer;
        event.id = next_id_++;
        emit(event);
        return event.id;
    }

    void wait(PlanOp op, const char* name, CollectiveKind kind, GroupKind group, std::int64_t bytes, std::int64_t id)
    {
        StepEvent event;
        event.kind = EventKind::wait;
        event.op = op;
        event.name = name;
        event.collective = kind;
        event.group = group;
        event.bytes = bytes;
        event.id = id;
        emit(event);
    }

    void collective(PlanOp op, const char* name, CollectiveKind kind, GroupKind group, std::int64_t ranks, std::int64_t bytes)
    {
        if (ranks > 1) { wait(op, name, kind, group, bytes, start(op, name, kind, group, bytes)); }
    }

    std::int64_t message_bytes() const { return table_.at(PlanOp::pipeline, "x").bytes(); }
    std::int64_t start_message(CollectiveKind kind, const char* name)
    {
        return start(PlanOp::pipeline, name, kind, GroupKind::pp, message_bytes());
    }
    void wait_message(std::int64_t id, CollectiveKind kind, const char* name)
    {
        wait(PlanOp::pipeline, name, kind, GroupKind::pp, message_bytes(), id);
    }

    void recv_activation()
    {
        if (phase_ != StepPhase::validation) { phase_ = StepPhase::forward; }
        tensor(EventKind::alloc, PlanOp::pipeline, "x", layers().first);
        wait_message(start_message(CollectiveKind::recv, "x"), CollectiveKind::recv, "x");
    }

    void forward()
    {
        phase_ = StepPhase::forward;
        if (chunk().is_first())
        {
            use([&] { replay(scripts_.embedding_forward, -1); });
        }
        for (std::int64_t layer = layers().first; layer < layers().last; ++layer)
        {
            use([&] { replay(scripts_.block_forward, layer); });
        }
        if (chunk().is_last())
        {
            use([&] { replay(scripts_.head_step, layers().last); });
        }
    }

    void free_output() { tensor(EventKind::free, PlanOp::mlp, "y", layers().last - 1); }

    void recv_gradient()
    {
        phase_ = StepPhase::backward;
        tensor(EventKind::alloc, PlanOp::pipeline, "dy", layers().last - 1);
        wait_message(start_message(CollectiveKind::recv, "dy"), CollectiveKind::recv, "dy");
    }

    void backward()
    {
        phase_ = StepPhase::backward;
        for (std::int64_t layer = layers().last; layer-- > layers().first;)
        {
            use([&] { replay(scripts_.block_backward, layer); });
        }
        if (!chunk().is_first()) { return; }
        use(
            [&]
            {
                replay(scripts_.embedding_backward, -1);
                free_gradient();
            });
    }

    void backward_input()
    {
        phase_ = StepPhase::backward;
        for (std::int64_t layer = layers().last; layer-- > layers().first;)
        {
            use([&] { replay(scripts_.block_backward_input, layer); });
        }
    }

    void backward_weight()
    {
        phase_ = StepPhase::backward;
        for (std::int64_t layer = layers().last; layer-- > layers().first;)
        {
            use([&] { replay(scripts_.block_backward_weight, layer); });
        }
        if (!chunk().is_first()) { return; }
        use(
            [&]
            {
                replay(scripts_.embedding_backward, -1);
                free_gradient();
            });
    }

    /// In the plain backward, and with dropout, the gradient of the stream lies where it began: it is written over from layer to layer.
    void free_gradient()
    {
        const Named began = split_backward_ && !table_.shapes().hidden_dropout
                                ? Named{table_.at(PlanOp::attention, "dx"), layers().first}
                                : stream_gradient(chunk_);
        tensor(EventKind::free, began.tensor.op, began.tensor.name, began.layer);
    }

    using MessageKey = std::tuple<ActionKind, std::int64_t, std::int64_t>;  ///< with micro-batch and chunk
    static MessageKey key_of(const Action& send) { return {send.kind, send.micro_batch, send.chunk}; }
    static const char* sent_name(const Action& send) { return send.kind == ActionKind::send_activation ? "y" : "dx"; }

    void send(const Action& action) { sent_[key_of(action)] = start_message(CollectiveKind::send, sent_name(action)); }

    void wait_for(const std::vector<Action>& sends)
    {
        const std::pair<std::int64_t, std::int64_t> now(micro_batch_, chunk_);
        for (const Action& send : sends)
        {
            micro_batch_ = send.micro_batch;
            chunk_ = send.chunk;
            wait_message(sent_.at(key_of(send)), CollectiveKind::send, sent_name(send));
            sent_.erase(key_of(send));
            if (send.kind == ActionKind::send_activation) { free_output(); }
            else { free_gradient(); }
        }
        micro_batch_ = now.first;
        chunk_ = now.second;
    }

    /// As GradientReducer::finish() and the norm behind it.
    void finish_units(const FlatLayout& flat)
    {
        const ParallelLayout& layout = inputs_.layout;
        const std::int64_t gradient_bytes = sum_bytes(flat.element_bytes);
        const auto mine = [&](const FlatUnit& unit)
        { return (is_sharded(layout, StateKind::optimizer) ? unit.shard_elements : unit.num_elements) * gradient_bytes; };
        const std::vector<PartialSum> sums = partial_sums(flat, layout, inputs_.coordinate);
        StepEvent room;
        room.kind = EventKind::alloc;
        room.op = PlanOp::reduce;
        room.category = MemoryUse::communication;
        room.name = "partial sums";
        room.bytes = partial_sum_room(sums) * gradient_bytes;
        if (room.bytes > 0) { emit(room); }
        for (const FlatUnit& unit : flat.units)
        {
            collective(PlanOp::reduce, "gradients", CollectiveKind::all_reduce, GroupKind::replicas, layout.replicas(), mine(unit));
        }
        for (const PartialSum& sum : sums)
        {
            const GroupKind group = sum.ranks == layout.tp ? GroupKind::tp : GroupKind::kv;
            collective(PlanOp::reduce, "partial gradients", CollectiveKind::all_reduce, group, sum.ranks,
                       sum.num_elements() * gradient_bytes);
        }
        for (const FlatUnit& unit : flat.units)
        {
            if (unit.kind != UnitKind::tied_embedding) { continue; }
            collective(PlanOp::reduce, "tied gradients", CollectiveKind::all_reduce, GroupKind::embedding,
                       ends_are_apart(layout) ? 2 : 1, mine(unit));
        }
        room.kind = EventKind::free;
        if (room.bytes > 0) { emit(room); }
        for (const FlatUnit& unit : flat.units)
        {
            compute(PlanOp::reduce, "norm", 2.0 * static_cast<double>(mine(unit) / gradient_bytes), mine(unit));
        }
    }

    /// Returns the number of the gather that it starts, or -1.
    std::int64_t update_unit(const FlatUnit& unit, const FlatLayout& flat)
    {
        const std::int64_t element_bytes = flat.element_bytes;
        const bool sharded = is_sharded(inputs_.layout, StateKind::optimizer);
        const std::int64_t elements = sharded ? unit.shard_elements : unit.num_elements;
        // AdamW reads and writes parameter (or master), gradient (zeroed) and two moments; a master is rounded.
        const std::int64_t rounded = keeps_master(inputs_.policies.dtype) ? element_bytes : 0;
        compute(PlanOp::update, "adamw", 16.0 * static_cast<double>(elements), elements * (8 * sum_bytes(flat.element_bytes) + rounded));
        if (!sharded || inputs_.layout.shards() == 1 || is_gathered(unit, inputs_.layout, element_bytes)) { return -1; }
        return start(PlanOp::update, "parameters", CollectiveKind::all_gather, GroupKind::dp, unit.num_elements * element_bytes);
    }

    void compute(PlanOp op, const char* name, double flops, std::int64_t traffic)
    {
        StepEvent event;
        event.op = op;
        event.name = name;
        event.flops = flops;
        event.bytes = traffic;
        emit(event);
    }

    const StepInputs& inputs_;
    std::int64_t stage_;
    std::vector<StageChunk> chunks_;
    std::int64_t chunk_ = 0;
    ActivationTable table_;
    OpScripts scripts_;
    const EventSink& sink_;
    StepPhase phase_ = StepPhase::forward;
    std::int64_t micro_batch_ = -1;
    std::int64_t next_id_ = 0;
    std::map<MessageKey, std::int64_t> sent_;  // ids of what is not waited for yet
    const FlatLayout* flat_ = nullptr;
    std::optional<UnitOrder> order_;
    std::vector<std::array<std::int64_t, 2>> made_in_;    // by unit: micro-batch of the parameters and the gradients that are there
    std::vector<std::int64_t> collectives_;               // by unit: its gather
    std::map<std::size_t, std::int64_t> sums_;            // by unit: its reduction
    bool split_backward_ = false;
};

StepExpander::StepExpander(const StepInputs& inputs, std::int64_t batch, const EventSink& sink)
    : impl_(std::make_unique<Impl>(inputs, batch, sink))
{
}

StepExpander::~StepExpander() = default;

void StepExpander::run(const FlatLayout& flat, const PipelineSchedule& schedule) { impl_->run(flat, schedule); }
void StepExpander::reduce_and_update(const FlatLayout& flat) { impl_->reduce_and_update(flat); }
void StepExpander::validate(const FlatLayout& flat) { impl_->validate(flat); }
void StepExpander::check_replicas(const FlatLayout& flat) { impl_->check_replicas(flat); }
void StepExpander::all_collectives(const FlatLayout& flat) { impl_->all_collectives(flat); }

}  // namespace plimsoll
