#include "plan/step_program.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include "base/error.hpp"
#include "layout/collective_cost.hpp"
#include "layout/precision.hpp"
#include "plan/communication_plan.hpp"
#include "plan/step_expander.hpp"

namespace plimsoll
{
namespace
{

void emit_buffer(const EventSink& sink, MemoryUse category, const char* name, std::int64_t layer, std::int64_t bytes)
{
    StepEvent event;
    event.kind = EventKind::alloc;
    event.category = category;
    event.name = name;
    event.layer = layer;
    event.bytes = bytes;
    if (bytes > 0) { sink(event); }
}

}  // namespace

PipelineSchedule step_schedule(const ParallelLayout& layout, Repeats repeats)
{
    const std::int64_t all = layout.accumulation();
    std::int64_t steady = all;
    switch (layout.schedule)
    {
        case PipelineKind::gpipe: steady = layout.pp == 1 ? 4 : all; break;  // else it has none
        // At most pp micro-batches begin before the first ends; from a stage's third backward on two gradients are under way
        // beside it, and nothing new comes.
        case PipelineKind::one_f_one_b: steady = layout.pp + 3; break;
        // Weights are put off by up to pp micro-batches; in a V two chunks fill it.
        case PipelineKind::zb_h1: steady = 2 * layout.pp + 3; break;
        case PipelineKind::zbv: steady = 4 * layout.pp + 3; break;
        // Whole groups of pp: two fill the pipeline.
        case PipelineKind::interleaved: steady = 5 * layout.pp; break;
    }
    const std::int64_t num = repeats == Repeats::left_out ? std::min(all, steady) : all;
    return make_schedule(layout.schedule, layout.pp, num, layout.virtual_stages);
}

RankProgram::RankProgram(StepInputs inputs)
    : inputs_(std::move(inputs)), flat_(make_flat_layout(inputs_.model, inputs_.layout, inputs_.coordinate,
                                                         dtype_bytes(inputs_.policies.dtype)))
{
}

void RankProgram::start_up(const EventSink& sink) const
{
    struct State
    {
        const char* name;
        MemoryUse use;
    };
    std::vector<State> states = {{"parameters", MemoryUse::parameters},
                                 {"gradients", MemoryUse::gradients},
                                 {"exp_avg", MemoryUse::optimizer},
                                 {"exp_avg_sq", MemoryUse::optimizer}};
    if (keeps_master(inputs_.policies.dtype)) { states.push_back({"master", MemoryUse::optimizer}); }
    for (const State& state : states)
    {
        const std::int64_t element_bytes = state.use == MemoryUse::parameters ? flat_.element_bytes : sum_bytes(flat_.element_bytes);
        for (const FlatUnit& unit : flat_.units)
        {
            const ParallelLayout& layout = inputs_.layout;
            const bool shard = state.use == MemoryUse::parameters  ? is_gathered(unit, layout, flat_.element_bytes)
                               : state.use == MemoryUse::gradients ? layout.shards_gradients()
                                                                   : is_sharded(layout, StateKind::optimizer);
            emit_buffer(sink, state.use, state.name, unit.layer,
                        (shard ? unit.shard_elements : unit.num_elements) * element_bytes);
        }
    }
    if (inputs_.model.position == PositionKind::rope)
    {
        const std::int64_t table = inputs_.policies.seq_len * (inputs_.model.head_dim / 2) * sum_bytes(flat_.element_bytes);
        emit_buffer(sink, MemoryUse::parameters, "rope_cos", -1, table);
        emit_buffer(sink, MemoryUse::parameters, "rope_sin", -1, table);
    }
    if (inputs_.policies.transport == Transport::messages && inputs_.layout.world() > 1) { scratch(sink); }
}

/// Each group that reduces more than a little keeps scratch from its first such operation on.
void RankProgram::scratch(const EventSink& sink) const
{
    std::set<GroupKind> reducing;
    const EventSink look = [&](const StepEvent& event)
    {
        if (event.kind != EventKind::start) { return; }
        const bool large = all_reduce_takes_scratch(event.bytes, group_size(inputs_, event.group));
        if (event.collective == CollectiveKind::reduce_scatter || (event.collective == CollectiveKind::all_reduce && large))
        {
            reducing.insert(event.group);
        }
    };
    StepExpander(inputs_, inputs_.layout.micro_batch, look).all_collectives(flat_);
    for (const GroupKind group : reducing)
    {
        emit_buffer(sink, MemoryUse::communication, group_kind_name(group), -1,
                    collective_scratch_bytes(group_size(inputs_, group)));
    }
}

void RankProgram::step(const PipelineSchedule& schedule, const EventSink& sink) const
{
    StepExpander expander(inputs_, inputs_.layout.micro_batch, sink);
    expander.run(flat_, schedule);
    expander.reduce_and_update(flat_);
}

void RankProgram::validation(const EventSink& sink) const
{
    if (inputs_.policies.eval_micro_batch == 0) { return; }
    StepExpander(inputs_, inputs_.policies.eval_micro_batch, sink).validate(flat_);
}

void RankProgram::replica_check(const EventSink& sink) const
{
    StepExpander(inputs_, inputs_.layout.micro_batch, sink).check_replicas(flat_);
}

StepProgram make_step_program(const StepInputs& inputs)
{
    const RankProgram rank(inputs);
    StepProgram program;
    rank.start_up([&](const StepEvent& event) { program.start_up.push_back(event); });
    rank.step(step_schedule(inputs.layout, Repeats::all), [&](const StepEvent& event) { program.step.push_back(event); });
    rank.validation([&](const StepEvent& event) { program.validation.push_back(event); });
    rank.replica_check([&](const StepEvent& event) { program.replica_check.push_back(event); });
    return program;
}

}  // namespace plimsoll
