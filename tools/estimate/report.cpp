#include "report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/units.hpp"
#include "layout/precision.hpp"
#include "plan/communication_plan.hpp"
#include "plan/kernel_shapes.hpp"

namespace plimsoll
{
namespace
{

constexpr std::size_t most_columns = 4;

/// Stages that get a column: all, or the ends and the one that needs most.
std::vector<std::size_t> shown_stages(const MemoryPlan& plan)
{
    std::vector<std::size_t> shown;
    for (std::size_t stage = 0; stage < plan.stages.size(); ++stage)
    {
        const bool chosen = stage < 2 || stage + 1 == plan.stages.size() || static_cast<std::int64_t>(stage) == plan.worst_stage();
        if (plan.stages.size() <= most_columns || chosen) { shown.push_back(stage); }
    }
    return shown;
}

class Table
{
  public:
    Table(const MemoryPlan& plan, const MemoryLimit& limit, const std::string& precision)
        : plan_(plan), limit_(limit), precision_(precision), stages_(shown_stages(plan)), unit_(memory_unit_for(plan.peak_bytes()))
    {
    }

    std::string text()
    {
        title();
        header();
        for (int use = 0; use < num_memory_uses; ++use) { category(static_cast<MemoryUse>(use)); }
        peak();
        sent();
        return std::move(text_);
    }

  private:
    const RankMemory& rank(std::size_t stage) const { return plan_.stages[stage]; }

    void title()
    {
        const ParallelLayout& layout = plan_.layout;
        const char* cut = layout.sequence_parallel && layout.tp > 1 ? " (sequence parallel)" : "";
        text_ += fmt::format("{} ({} parameters)   dp {} x tp {}{} x pp {} = {} {}   zero {}   {}\n", plan_.model.name,
                             format_count(static_cast<double>(num_parameters(plan_.model))), layout.dp, layout.tp, cut, layout.pp,
                             layout.world(), layout.world() == 1 ? "rank" : "ranks", layout.zero_stage, precision_);
        text_ += fmt::format("micro-batch {} x {} tokens, {} accumulated   {} {} per rank\n\n", layout.micro_batch,
                             plan_.policies.seq_len, layout.accumulation(), plan_.policies.threads,
                             plan_.policies.threads == 1 ? "thread" : "threads");
    }

    void row(const std::string& name, const std::vector<std::string>& cells, const std::string& note)
    {
        std::string line = fmt::format("{:<24}", name);
        for (const std::string& cell : cells) { line += fmt::format("{:>11}", cell); }
        if (!note.empty()) { line += "   " + note; }
        while (!line.empty() && line.back() == ' ') { line.pop_back(); }
        text_ += line + "\n";
    }

    void header()
    {
        std::vector<std::string> cells;
        for (const std::size_t stage : stages_)
        {
            cells.push_back(plan_.stages.size() == 1 ? std::string("bytes") : fmt::format("stage {}", stage));
        }
        if (plan_.stages.size() == 1) { cells.front() = unit_.name; }
        row(plan_.stages.size() == 1 ? "per rank" : fmt::format("per rank, {}", unit_.name), cells, "");
        const std::string split =
            plan_.layout.split.kind == SplitKind::even ? "" : "pp-split " + stage_split_text(plan_.layout.split);
        const std::string chunks =
            plan_.layout.virtual_stages == 1 ? "" : fmt::format("{} chunks per stage", plan_.layout.virtual_stages);
        if (split.empty() && chunks.empty()) { return; }
        cells.clear();
        for (const std::size_t stage : stages_)
        {
            std::string layers;
            for (const StageChunk& chunk : rank(stage).chunks)
            {
                layers += fmt::format("{}{}", layers.empty() ? "" : "+", chunk.layers.size());
            }
            cells.push_back(layers);
        }
        row("layers", cells, chunks + (chunks.empty() || split.empty() ? "" : ", ") + split);
    }

    void category(MemoryUse use)
    {
        std::vector<std::string> cells;
        for (const std::size_t stage : stages_)
        {
            const std::int64_t bytes = rank(stage).peak().of(use);
            cells.push_back(bytes == 0 ? "-" : unit_.text(bytes));
        }
        row(memory_use_title(use), cells, note(use));
    }

    std::string note(MemoryUse use) const
    {
        const ParallelLayout& layout = plan_.layout;
        switch (use)
        {
            case MemoryUse::optimizer:
                return fmt::format("{}2 moments{}", keeps_master(plan_.policies.dtype) ? "master and " : "",
                                   layout.zero_stage >= 1 && layout.dp > 1 ? fmt::format(", over dp {}", layout.dp) : "");
            case MemoryUse::activations: return in_flight_note();
            case MemoryUse::loss: return loss_note();
            default: return "";
        }
    }

    std::string in_flight_note() const
    {
        if (plan_.stages.size() == 1) { return "1 micro-batch in flight"; }
        std::string counts;
        for (std::size_t i = 0; i < stages_.size(); ++i)
        {
            const char* before = i == 0 ? "" : i + 1 == stages_.size() ? " and " : ", ";
            counts += fmt::format("{}{}", before, rank(stages_[i]).micro_batches_in_flight);
        }
        return fmt::format("{} {} in flight ({})", counts, plan_.layout.virtual_stages == 1 ? "micro-batches" : "chunks",
                           pipeline_kind_name(plan_.layout.schedule));
    }

    std::string loss_note() const
    {
        const LocalShapes shapes =
            make_local_shapes(plan_.model, plan_.layout, MeshCoordinate(), plan_.policies, plan_.layout.micro_batch);
        const std::int64_t chunks = (shapes.tokens + shapes.chunk_rows - 1) / shapes.chunk_rows;
        std::string text = fmt::format("vocabulary {}", plan_.model.vocab);
        if (plan_.layout.tp > 1) { text += fmt::format(" over tp {}", plan_.layout.tp); }
        return text + (chunks == 1 ? ", logits in one piece" : fmt::format(", logits in {} pieces", chunks));
    }

    void peak()
    {
        row("", std::vector<std::string>(stages_.size(), "--------"), "");
        std::vector<std::string> cells;
        std::string reached;
        for (const std::size_t stage : stages_)
        {
            cells.push_back(unit_.text(rank(stage).peak().bytes));
            reached += fmt::format("{}{}", reached.empty() ? "" : " | ", rank(stage).peak().where());
        }
        row("allocated peak", cells, "");
        text_ += fmt::format("reached in: {}\n", reached);
        if (plan_.stages.size() > stages_.size())
        {
            text_ += fmt::format("{} more stages need no more than these; --json has all\n", plan_.stages.size() - stages_.size());
        }
        std::int64_t total = 0;
        for (const RankMemory& each : plan_.stages) { total += each.peak().bytes; }
        total *= plan_.layout.dp * plan_.layout.tp;
        text_ += fmt::format("total of {} {}: {}   limit of a rank: {} ({})\n", plan_.layout.world(),
                             plan_.layout.world() == 1 ? "rank" : "ranks", format_memory(static_cast<double>(total)),
                             format_memory(static_cast<double>(limit_.bytes)), limit_.source);
    }

    /// What a rank sends in one step, by group; groups that send next to nothing are in --json only.
    void sent()
    {
        std::map<std::string, std::vector<PlannedCommunication>> groups;
        std::int64_t largest = 0;
        for (std::size_t i = 0; i < stages_.size(); ++i)
        {
            for (const auto& [name, sent] : plan_communication({plan_.model, plan_.layout, rank(stages_[i]).coordinate, plan_.policies}))
            {
                groups[name].resize(stages_.size());
                groups[name][i] = sent;
                largest = std::max(largest, sent.bytes);
            }
        }
        if (largest == 0) { return; }
        const MemoryUnit unit = memory_unit_for(largest);
        text_ += "\n";
        row(fmt::format("sent in a step, {}", unit.name), {}, "");
        for (const auto& [name, stages] : groups)
        {
            std::vector<std::string> cells;
            std::string calls;
            bool counts = false, same = true;
            for (const PlannedCommunication& sent : stages)
            {
                cells.push_back(sent.calls == 0 ? "-" : unit.text(sent.bytes));
                counts = counts || unit.text(sent.bytes) != unit.text(0);
                same = same && sent.calls == stages.front().calls;
                calls += fmt::format("{}{}", calls.empty() ? "" : " | ", sent.calls);
            }
            if (same) { calls = fmt::format("{}", stages.front().calls); }
            if (counts) { row("  " + name, cells, calls + (calls == "1" ? " call" : " calls")); }
        }
    }

    const MemoryPlan& plan_;
    const MemoryLimit& limit_;
    const std::string& precision_;
    std::vector<std::size_t> stages_;
    MemoryUnit unit_;
    std::string text_;
};

std::string percent(double share) { return fmt::format("{:+.0f} %", 100 * share); }

/// "verdict: fits with 49 % spare" or by how much it does not.
std::string verdict(const MemoryPlan& plan, const MemoryLimit& limit)
{
    const double spare = 1.0 - static_cast<double>(plan.peak_bytes()) / static_cast<double>(limit.bytes);
    const std::int64_t bytes = limit.bytes - plan.peak_bytes();
    if (bytes >= 0)
    {
        return fmt::format("verdict: fits, {} ({:.0f} %) spare\n", format_memory(static_cast<double>(bytes)), 100 * spare);
    }
    return fmt::format("verdict: does not fit, {} ({:.0f} %) too much\n", format_memory(static_cast<double>(-bytes)), -100 * spare);
}

}  // namespace

std::vector<Knob> turn_knobs(const MemoryPlan& plan)
{
    std::vector<Knob> knobs;
    const auto turn = [&](const std::string& name, const ParallelLayout& layout)
    {
        if (layout.micro_batch < 1 || layout.dp < 1 || layout.world() != plan.layout.world() ||
            !validate(layout, plan.model, layout.world()).empty() || !token_faults(layout, plan.policies.seq_len).empty())
        {
            return;
        }
        Knob knob;
        knob.name = name;
        knob.layout = layout;
        knob.peak_bytes = planned_peak_bytes(plan.model, layout, plan.policies);
        knobs.push_back(knob);
    };
    ParallelLayout layout = plan.layout;
    layout.micro_batch *= 2;
    turn(fmt::format("micro-batch {}", layout.micro_batch), layout);
    layout = plan.layout;
    layout.micro_batch /= 2;
    turn(fmt::format("micro-batch {}", layout.micro_batch), layout);
    layout = plan.layout;
    layout.zero_stage = layout.zero_stage == 0 ? 1 : 0;
    if (layout.dp > 1) { turn(fmt::format("zero {}", layout.zero_stage), layout); }
    layout = plan.layout;
    layout.sequence_parallel = !layout.sequence_parallel;
    if (layout.tp > 1) { turn(layout.sequence_parallel ? "sequence parallel" : "no sequence parallel", layout); }
    for (const auto axis : {&ParallelLayout::tp, &ParallelLayout::pp})
    {
        const char* name = axis == &ParallelLayout::tp ? "tp" : "pp";
        layout = axis == &ParallelLayout::pp ? with_pp(plan.layout, 2 * plan.layout.pp) : plan.layout;
        layout.*axis = 2 * plan.layout.*axis;
        layout.dp /= 2;
        turn(fmt::format("{} {} dp {}", name, layout.*axis, layout.dp), layout);
        layout = axis == &ParallelLayout::pp ? with_pp(plan.layout, plan.layout.pp / 2) : plan.layout;
        layout.*axis = plan.layout.*axis / 2;
        layout.dp *= 2;
        if (layout.*axis >= 1) { turn(fmt::format("{} {} dp {}", name, layout.*axis, layout.dp), layout); }
    }
    return knobs;
}

std::string memory_table(const MemoryPlan& plan, const MemoryLimit& limit, const std::vector<Knob>& knobs,
                         const std::string& precision)
{
    std::string text = Table(plan, limit, precision).text();
    const MemoryUnit unit = memory_unit_for(plan.peak_bytes());
    if (!knobs.empty()) { text += fmt::format("\n{:<24}{:>11}\n", "one knob at a time", fmt::format("peak {}", unit.name)); }
    for (const Knob& knob : knobs)
    {
        const double share = static_cast<double>(knob.peak_bytes) / static_cast<double>(plan.peak_bytes()) - 1.0;
        text += fmt::format("{:<24}{:>11}   {}{}\n", knob.name, unit.text(knob.peak_bytes), percent(share),
                            knob.peak_bytes > limit.bytes ? ", does not fit" : "");
    }
    return text + "\n" + verdict(plan, limit);
}

std::string memory_json(const MemoryPlan& plan, const MemoryLimit& limit, const std::vector<Knob>& knobs)
{
    nlohmann::ordered_json out = memory_plan_json(plan, limit);
    out["knobs"] = nlohmann::ordered_json::array();
    for (const Knob& knob : knobs)
    {
        nlohmann::ordered_json row;
        row["name"] = knob.name;
        row["peak_bytes"] = knob.peak_bytes;
        out["knobs"].push_back(std::move(row));
    }
    out["fitting"] = nlohmann::ordered_json::array();
    if (plan.peak_bytes() > limit.bytes)
    {
        for (const LayoutChoice& choice : search_layouts(plan, limit).fitting)
        {
            nlohmann::ordered_json row;
            row["options"] = choice.options;
            row["peak_bytes"] = choice.peak_bytes;
            out["fitting"].push_back(std::move(row));
        }
    }
    return out.dump(1) + "\n";
}

}  // namespace plimsoll
