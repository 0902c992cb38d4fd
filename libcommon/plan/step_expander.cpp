#include "plan/step_expander.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <utility>

#include "base/error.hpp"
#include "layout/precision.hpp"
#include "plan/op_scripts.hpp"
#include "plan/unit_order.hpp"

namespace plimsoll
{

class StepExpander::Impl
{
  public:
    Impl(const StepInputs& inputs, std::int64_t batch, const EventSink& sink)
        : inputs_(inputs), stage_(inputs.coordinate[MeshAxis::pp]), first_stage_(stage_ == 0),
          last_stage_(stage_ == inputs.layout.pp - 1), range_(stage_layers(inputs.model, inputs.layout, stage_)),
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
        for (const Action& action : actions)
        {
            micro_batch_ = action.micro_batch;
            switch (action.kind)
            {
                case ActionKind::recv_activation: recv_activation(); break;
                case ActionKind::forward: forward(); break;
                case ActionKind::send_activation: sent_[micro_batch_] = start_message(CollectiveKind::send, "y"); break;
                case ActionKind::recv_gradient: recv_gradient(); break;
                case ActionKind::backward: backward(); break;
                case ActionKind::backward_input: backward_input(); break;
                case ActionKind::backward_weight: backward_weight(); break;
                case ActionKind::send_gradient: send_gradient(); break;
            }
        }
        finish_gradient_send();
        micro_batch_ = -1;
        phase_ = StepPhase::reduce;
        unit_actions(order_->finish());
    }

    void all_collectives(const FlatLayout& flat)
    {
        if (first_stage_) { replay(scripts_.embedding_forward, -1); }
        replay(scripts_.block_forward, range_.first);
        if (last_stage_) { replay(scripts_.head_step, range_.last); }
        replay(scripts_.block_backward, range_.first);
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
        for (const FlatUnit& unit : flat.units) { finish_unit(unit, sum_bytes(flat.element_bytes)); }
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
        const bool pair = inputs_.model.tied && layout.pp > 1 && (first_stage_ || last_stage_);
        gather(GroupKind::embedding, pair ? 2 : 1);
        collective(PlanOp::replicas, "any difference", CollectiveKind::all_reduce, GroupKind::world, layout.world(), 8);
    }

    void validate(const FlatLayout& flat)
    {
        phase_ = StepPhase::validation;
        micro_batch_ = 0;
        follow(flat, uses_of_validation(flat, inputs_.layout.pp, stage_));
        if (first_stage_)
        {
            use([&] { replay(scripts_.embedding_forward, -1); });
        }
        else { recv_activation(); }
        for (std::int64_t layer = range_.first; layer < range_.last; ++layer)
        {
            use(
                [&]
                {
                    replay(scripts_.block_forward, layer);
                    replay(scripts_.block_drop, layer);
                });
        }
        if (last_stage_)
        {
            use([&] { replay(scripts_.head_validate, range_.last); });
            return;
        }
        wait_message(start_message(CollectiveKind::send, "y"), CollectiveKind::send, "y");
        free_output();
    }

  private:
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
        event.layer = layer > range_.first ? layer - 1 : -1;
        if (layer > range_.first) { return; }
        const PlannedTensor& input = first_stage_ ? table_.at(PlanOp::embedding, "y") : table_.at(PlanOp::pipeline, "x");
        event.op = input.op;
        event.name = input.name;
        event.category = input.category;
    }

    /// The gradient that enters block `layer` from behind, in the split backward.
    void name_block_gradient(StepEvent& event, std::int64_t layer) const
    {
        const bool is_top = layer + 1 == range_.last;
        const PlannedTensor& gradient = !is_top ? table_.at(PlanOp::attention, "dx") : stream_gradient();
        event.layer = is_top ? -1 : layer + 1;
        event.op = gradient.op;
        event.name = gradient.name;
        event.category = gradient.category;
    }

    /// What enters the stage's last block from behind.
    const PlannedTensor& stream_gradient() const
    {
        return last_stage_ ? table_.at(PlanOp::final_norm, "y") : table_.at(PlanOp::pipeline, "dy");
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
        tensor(EventKind::alloc, PlanOp::pipeline, "x");
        wait_message(start_message(CollectiveKind::recv, "x"), CollectiveKind::recv, "x");
    }

    void forward()
    {
        phase_ = StepPhase::forward;
        if (first_stage_)
        {
            use([&] { replay(scripts_.embedding_forward, -1); });
        }
        for (std::int64_t layer = range_.first; layer < range_.last; ++layer)
        {
            use([&] { replay(scripts_.block_forward, layer); });
        }
        if (last_stage_)
        {
            use([&] { replay(scripts_.head_step, range_.last); });
        }
    }

    void free_output() { tensor(EventKind::free, PlanOp::mlp, "y", range_.last - 1); }

    void recv_gradient()
    {
        phase_ = StepPhase::backward;
        wait_message(sent_.at(micro_batch_), CollectiveKind::send, "y");
        sent_.erase(micro_batch_);
        free_output();
        tensor(EventKind::alloc, PlanOp::pipeline, "dy");
        wait_message(start_message(CollectiveKind::recv, "dy"), CollectiveKind::recv, "dy");
    }

    void backward()
    {
        phase_ = StepPhase::backward;
        for (std::int64_t layer = range_.last; layer-- > range_.first;)
        {
            use([&] { replay(scripts_.block_backward, layer); });
        }
        if (!first_stage_) { return; }
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
        for (std::int64_t layer = range_.last; layer-- > range_.first;)
        {
            use([&] { replay(scripts_.block_backward_input, layer); });
        }
    }

    void backward_weight()
    {
        phase_ = StepPhase::backward;
        for (std::int64_t layer = range_.last; layer-- > range_.first;)
        {
            use([&] { replay(scripts_.block_backward_weight, layer); });
        }
        if (!first_stage_) { return; }
        use(
            [&]
            {
                replay(scripts_.embedding_backward, -1);
                free_gradient();
            });
    }

    /// In the plain backward the gradient of the stream lies where it began: it is written over from layer to layer.
    void free_gradient()
    {
        if (split_backward_) { tensor(EventKind::free, PlanOp::attention, "dx", range_.first); }
        else { tensor(EventKind::free, stream_gradient().op, stream_gradient().name); }
    }

    void finish_gradient_send()
    {
        if (gradient_sent_ < 0) { return; }
        const std::int64_t now = micro_batch_;
        micro_batch_ = gradient_micro_batch_;
        wait_message(gradient_sent_, CollectiveKind::send, "dx");
        free_gradient();
        micro_batch_ = now;
        gradient_sent_ = -1;
    }

    void send_gradient()
    {
        finish_gradient_send();
        gradient_micro_batch_ = micro_batch_;
        gradient_sent_ = start_message(CollectiveKind::send, "dx");
    }

    /// As GradientReducer::finish(). `element_bytes` of a gradient.
    void finish_unit(const FlatUnit& unit, std::int64_t element_bytes)
    {
        const ParallelLayout& layout = inputs_.layout;
        const bool sharded = is_sharded(layout, StateKind::optimizer);
        const std::int64_t elements = sharded ? unit.shard_elements : unit.num_elements;
        const std::int64_t first = sharded ? shard_index(layout, inputs_.coordinate) * elements : 0;
        const std::int64_t mine = elements * element_bytes;
        collective(PlanOp::reduce, "gradients", CollectiveKind::all_reduce, GroupKind::replicas, layout.replicas(), mine);
        std::int64_t begin = 0, end = 0, ranks = 1;
        const auto flush = [&]
        {
            const GroupKind group = ranks == layout.tp ? GroupKind::tp : GroupKind::kv;
            const std::int64_t here = std::min(end, first + elements) - std::max(begin, first);
            if (here > 0)
            {
                collective(PlanOp::reduce, "partial gradients", CollectiveKind::all_reduce, group, ranks, here * element_bytes);
            }
            ranks = 1;
        };
        for (const FlatTensor& tensor : unit.tensors)
        {
            const std::int64_t sharers = partial_gradient_ranks(tensor.spec.shard, layout.tp);
            if (sharers == 1) { continue; }
            if (sharers != ranks || tensor.offset != end)
            {
                flush();
                begin = tensor.offset;
                ranks = sharers;
            }
            end = tensor.offset + tensor.num_elements();
        }
        flush();
        if (unit.kind == UnitKind::tied_embedding)
        {
            collective(PlanOp::reduce, "tied gradients", CollectiveKind::all_reduce, GroupKind::embedding,
                       layout.pp > 1 ? 2 : 1, mine);
        }
        compute(PlanOp::reduce, "norm", 2.0 * static_cast<double>(mine / element_bytes), mine);
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
    bool first_stage_, last_stage_;
    StageRange range_;
    ActivationTable table_;
    OpScripts scripts_;
    const EventSink& sink_;
    StepPhase phase_ = StepPhase::forward;
    std::int64_t micro_batch_ = -1;
    std::int64_t next_id_ = 0;
    std::map<std::int64_t, std::int64_t> sent_;  // micro-batch -> id of the send of its activation
    std::int64_t gradient_sent_ = -1;
    std::int64_t gradient_micro_batch_ = -1;
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
