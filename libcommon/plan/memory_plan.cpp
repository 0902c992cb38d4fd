#include "plan/memory_plan.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "base/units.hpp"
#include "plan/communication_plan.hpp"

namespace plimsoll
{

std::string MemoryPeak::where() const
{
    if (phase == StepPhase::start_up) { return "start"; }
    if (phase == StepPhase::validation || phase == StepPhase::reduce || phase == StepPhase::update)
    {
        return step_phase_name(phase);
    }
    const char* direction = step_phase_name(phase);
    std::string text;
    if (layer >= 0) { text = fmt::format("{} of layer {}", direction, layer); }
    else if (op == PlanOp::head_loss) { text = "loss"; }
    else { text = fmt::format("{} of {}", direction, op == PlanOp::final_norm ? "the last norm" : plan_op_name(op)); }
    return micro_batch >= 0 ? text + fmt::format(", micro-batch {}", micro_batch + 1) : text;
}

void MemoryFold::add(const StepEvent& event)
{
    const auto index = static_cast<std::size_t>(event.category);
    if (event.kind == EventKind::alloc)
    {
        current_ += event.bytes;
        categories_[index] += event.bytes;
        raise_peak(event, 0);
    }
    else if (event.kind == EventKind::free)
    {
        current_ -= event.bytes;
        categories_[index] -= event.bytes;
        ENSURE(categories_[index] >= 0);
    }
    else if (event.kind == EventKind::workspace) { raise_peak(event, event.bytes); }
}

void MemoryFold::raise_peak(const StepEvent& event, std::int64_t extra)
{
    if (current_ + extra <= peak_.bytes) { return; }
    peak_.bytes = current_ + extra;
    peak_.categories = categories_;
    peak_.categories[static_cast<std::size_t>(event.category)] += extra;
    peak_.phase = event.phase;
    peak_.op = event.op;
    peak_.layer = event.layer;
    peak_.micro_batch = event.micro_batch;
}

void MemoryFold::reset_peak()
{
    peak_ = MemoryPeak();
    peak_.bytes = current_;
    peak_.categories = categories_;
}

std::int64_t RankMemory::num_layers() const
{
    return std::accumulate(chunks.begin(), chunks.end(), std::int64_t{0},
                           [](std::int64_t sum, const StageChunk& chunk) { return sum + chunk.layers.size(); });
}

RankMemory plan_rank_memory(const StepInputs& inputs)
{
    return plan_rank_memory(inputs, step_schedule(inputs.layout, Repeats::left_out));
}

RankMemory plan_rank_memory(const StepInputs& inputs, const PipelineSchedule& schedule)
{
    const std::int64_t stage = inputs.coordinate[MeshAxis::pp];
    const RankProgram program(inputs);
    RankMemory rank;
    rank.coordinate = inputs.coordinate;
    rank.chunks = stage_chunks(inputs.model, inputs.layout, stage);
    rank.micro_batches_in_flight = max_in_flight(schedule, stage);
    MemoryFold fold;
    const EventSink sink = [&fold](const StepEvent& event) { fold.add(event); };
    program.start_up(sink);
    rank.start_up_bytes = fold.current();
    fold.reset_peak();
    program.step(schedule, sink);
    rank.step = fold.peak();
    rank.after_step_bytes = fold.current();
    if (inputs.policies.eval_micro_batch > 0)
    {
        fold.reset_peak();
        program.validation(sink);
        rank.validation = fold.peak();
    }
    return rank;
}

std::int64_t MemoryPlan::worst_stage() const
{
    const auto worst = std::max_element(stages.begin(), stages.end(), [](const RankMemory& a, const RankMemory& b)
                                        { return a.peak().bytes < b.peak().bytes; });
    return worst - stages.begin();
}

namespace
{

/// Calls visit(plan of the rank that needs most) for each of `stages`. Ranks of a stage differ in the rows of the vocabulary
/// only, and tp rank 0 has most.
template<class Visit>
void for_stages(const ModelSpec& model, const ParallelLayout& layout, const StepPolicies& policies,
                const std::vector<std::int64_t>& stages, const Visit& visit)
{
    StepInputs inputs;
    inputs.model = model;
    inputs.layout = layout;
    inputs.policies = policies;
    const PipelineSchedule schedule = step_schedule(layout, Repeats::left_out);
    for (const std::int64_t stage : stages)
    {
        inputs.coordinate.index[static_cast<std::size_t>(MeshAxis::pp)] = stage;
        visit(plan_rank_memory(inputs, schedule));
    }
}

}  // namespace

MemoryPlan plan_memory(const ModelSpec& model, const ParallelLayout& layout, const StepPolicies& policies)
{
    MemoryPlan plan;
    plan.model = model;
    plan.layout = layout;
    plan.policies = policies;
    std::vector<std::int64_t> all(static_cast<std::size_t>(layout.pp));
    std::iota(all.begin(), all.end(), 0);
    for_stages(model, layout, policies, all, [&](RankMemory rank) { plan.stages.push_back(std::move(rank)); });
    return plan;
}

std::int64_t planned_peak_bytes(const ModelSpec& model, const ParallelLayout& layout, const StepPolicies& policies)
{
    // Evenly split and with whole backwards, stages between the ends do the same with never more micro-batches in flight or layers
    // than the one before.
    const bool falls = layout.split.kind == SplitKind::even &&
                       (layout.schedule == PipelineKind::one_f_one_b || layout.schedule == PipelineKind::gpipe);
    std::vector<std::int64_t> stages;
    for (std::int64_t stage = 0; stage < layout.pp; ++stage)
    {
        if (!falls || stage < 2 || stage == layout.pp - 1) { stages.push_back(stage); }
    }
    std::int64_t peak = 0;
    for_stages(model, layout, policies, stages,
               [&](const RankMemory& rank) { peak = std::max(peak, rank.peak().bytes); });
    return peak;
}

std::string MemoryUnit::text(std::int64_t value) const
{
    const double amount = static_cast<double>(value) / bytes;
    return fmt::format("{:.{}f}", amount, amount < 99.95 ? 2 : 1);
}

MemoryUnit memory_unit_for(std::int64_t largest)
{
    MemoryUnit unit;
    if (largest >= std::int64_t{1} << 30)
    {
        unit.name = "GiB";
        unit.bytes = 1073741824.0;
    }
    else if (largest < std::int64_t{1} << 20)
    {
        unit.name = "KiB";
        unit.bytes = 1024.0;
    }
    return unit;
}

std::string plan_row(const RankMemory& rank, const MemoryLimit& limit)
{
    const MemoryPeak& peak = rank.peak();
    const MemoryUnit unit = memory_unit_for(peak.bytes);
    std::string parts;
    for (int c = 0; c < num_memory_uses; ++c)
    {
        const auto category = static_cast<MemoryUse>(c);
        if (peak.of(category) == 0) { continue; }
        parts += fmt::format("{}{} {}", parts.empty() ? "" : ", ", memory_use_name(category), unit.text(peak.of(category)));
    }
    return fmt::format("peak {} {} per rank: {}   limit {}: {}", unit.text(peak.bytes), unit.name, parts,
                       format_memory(static_cast<double>(limit.bytes)), peak.bytes <= limit.bytes ? "ok" : "too much");
}

std::string plan_against_measured(std::int64_t planned, std::int64_t measured)
{
    const MemoryUnit unit = memory_unit_for(std::max(planned, measured));
    const double share =
        planned > 0 ? 100.0 * static_cast<double>(measured - planned) / static_cast<double>(planned) : 0.0;
    return fmt::format("plan {} {}, measured {} {} ({:+.1f} %)", unit.text(planned), unit.name, unit.text(measured), unit.name,
                       share);
}

namespace
{

nlohmann::ordered_json categories_json(const MemoryPeak& peak)
{
    nlohmann::ordered_json list = nlohmann::ordered_json::array();
    for (int c = 0; c < num_memory_uses; ++c)
    {
        const auto category = static_cast<MemoryUse>(c);
        nlohmann::ordered_json entry;
        entry["name"] = memory_use_name(category);
        entry["bytes"] = peak.of(category);
        list.push_back(std::move(entry));
    }
    return list;
}

nlohmann::ordered_json peak_json(const MemoryPeak& peak)
{
    nlohmann::ordered_json out;
    out["bytes"] = peak.bytes;
    out["where"] = peak.where();
    out["phase"] = step_phase_name(peak.phase);
    out["categories"] = categories_json(peak);
    return out;
}

nlohmann::ordered_json layout_json(const ParallelLayout& layout)
{
    nlohmann::ordered_json out;
    out["dp"] = layout.dp;
    out["tp"] = layout.tp;
    out["pp"] = layout.pp;
    out["sequence_parallel"] = layout.sequence_parallel && layout.tp > 1;
    out["schedule"] = pipeline_kind_name(layout.schedule);
    out["virtual_stages"] = layout.virtual_stages;
    out["zero"] = layout.zero_stage;
    out["micro_batch"] = layout.micro_batch;
    out["global_batch"] = layout.global_batch;
    out["accumulation"] = layout.accumulation();
    out["world"] = layout.world();
    return out;
}

nlohmann::ordered_json communication_json(const StepInputs& inputs)
{
    nlohmann::ordered_json groups = nlohmann::ordered_json::object();
    for (const auto& [name, sent] : plan_communication(inputs))
    {
        groups[name]["calls"] = sent.calls;
        groups[name]["bytes"] = sent.bytes;
    }
    return groups;
}

}  // namespace

nlohmann::ordered_json memory_plan_json(const MemoryPlan& plan, const MemoryLimit& limit)
{
    nlohmann::ordered_json out;
    out["schema"] = 1;
    out["model"] = plan.model.name;
    out["parameters"] = num_parameters(plan.model);
    out["layout"] = layout_json(plan.layout);
    out["dtype"] = std::string(dtype_name(plan.policies.dtype));
    out["seq_len"] = plan.policies.seq_len;
    out["threads"] = plan.policies.threads;
    out["ranks"] = nlohmann::ordered_json::array();
    const DeviceMesh mesh(plan.layout);
    for (const RankMemory& rank : plan.stages)
    {
        nlohmann::ordered_json row;
        row["rank"] = mesh.rank(rank.coordinate);
        row["stage"] = rank.coordinate[MeshAxis::pp];
        row["first_layer"] = rank.chunks.front().layers.first;
        row["layers"] = rank.num_layers();
        row["chunks"] = nlohmann::ordered_json::array();
        for (const StageChunk& chunk : rank.chunks)
        {
            row["chunks"].push_back({{"first_layer", chunk.layers.first}, {"layers", chunk.layers.size()}});
        }
        row["micro_batches_in_flight"] = rank.micro_batches_in_flight;
        row["start_up_bytes"] = rank.start_up_bytes;
        row["peak_bytes"] = rank.peak().bytes;
        row["categories"] = categories_json(rank.peak());
        row["step"] = peak_json(rank.step);
        row["communication"] = communication_json({plan.model, plan.layout, rank.coordinate, plan.policies});
        row["validation"] = rank.validation.bytes > 0 ? peak_json(rank.validation) : nlohmann::ordered_json();
        out["ranks"].push_back(std::move(row));
    }
    out["peak_bytes"] = plan.peak_bytes();
    out["limit_bytes"] = limit.bytes;
    out["limit_source"] = limit.source;
    out["fits"] = plan.peak_bytes() <= limit.bytes;
    return out;
}

}  // namespace plimsoll
