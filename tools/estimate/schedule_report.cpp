#include "schedule_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "layout/schedule_simulator.hpp"

namespace plimsoll
{
namespace
{

const char* placement_name(ChunkPlacement placement)
{
    return placement == ChunkPlacement::v_shape ? "v-shape" : "round-robin";
}

std::string cell_text(const PipelineSchedule& schedule, const Action& action)
{
    const char* letter = action.kind == ActionKind::forward ? "F" : action.kind == ActionKind::backward_weight ? "W" : "B";
    std::string text = fmt::format("{}{}", letter, action.micro_batch);
    if (schedule.num_chunks > 1) { text += static_cast<char>('a' + action.chunk % 26); }
    return text;
}

/// One line of cells; "." is a slot without work. Times are whole: one slot each.
std::string row_text(const PipelineSchedule& schedule, const SimulatedStage& stage, std::size_t slots, std::size_t width)
{
    std::vector<std::string> cells(slots, ".");
    for (const TimedWork& work : stage.work)
    {
        for (auto slot = static_cast<std::size_t>(work.start); slot < static_cast<std::size_t>(work.end); ++slot)
        {
            cells[slot] = cell_text(schedule, work.action);
        }
    }
    std::string line;
    for (const std::string& cell : cells) { line += fmt::format(" {:<{}}", cell, width); }
    line.erase(line.find_last_not_of(' ') + 1);
    return line;
}

std::string legend(const PipelineSchedule& schedule)
{
    const auto& actions = schedule.stages.front();
    const bool plain = std::any_of(actions.begin(), actions.end(), [](const Action& a) { return a.kind == ActionKind::backward; });
    std::string text = "a slot is a forward of one ";
    text += schedule.num_chunks > 1 ? "chunk (a: the stage's first)" : "stage";
    return text + (plain ? "; a backward takes two" : "; B is the backward of the input, W that of the weights");
}

}  // namespace

std::string schedule_text(const PipelineSchedule& schedule)
{
    const SimulatedSchedule done = simulate_schedule(schedule, ActionTimes());
    const auto slots = static_cast<std::size_t>(done.length);
    std::size_t width = 0;
    for (const SimulatedStage& stage : done.stages)
    {
        for (const TimedWork& work : stage.work) { width = std::max(width, cell_text(schedule, work.action).size()); }
    }
    std::string text = fmt::format("schedule {}   {} {}, {} {}", schedule.name, schedule.num_stages(),
                                   schedule.num_stages() == 1 ? "stage" : "stages", schedule.num_micro_batches,
                                   schedule.num_micro_batches == 1 ? "micro-batch" : "micro-batches");
    if (schedule.num_chunks > 1)
    {
        text += fmt::format(", {} chunks per stage ({})", schedule.num_chunks, placement_name(schedule.placement));
    }
    text += fmt::format("   {} slots   bubble {:.1f} %\n{}\n\n", slots, 100 * done.bubble(), legend(schedule));
    text += "stage  in flight\n";
    for (std::int64_t stage = 0; stage < schedule.num_stages(); ++stage)
    {
        text += fmt::format("{:>5}  {:>9}  {}\n", stage, max_in_flight(schedule, stage),
                            row_text(schedule, done.stages[static_cast<std::size_t>(stage)], slots, width));
    }
    return text;
}

std::string schedule_json(const PipelineSchedule& schedule)
{
    const SimulatedSchedule done = simulate_schedule(schedule, ActionTimes());
    nlohmann::ordered_json out;
    out["schema"] = 1;
    out["schedule"] = schedule.name;
    out["stages"] = schedule.num_stages();
    out["micro_batches"] = schedule.num_micro_batches;
    out["chunks"] = schedule.num_chunks;
    out["placement"] = placement_name(schedule.placement);
    out["slots"] = done.length;
    out["bubble"] = done.bubble();
    out["rows"] = nlohmann::ordered_json::array();
    for (std::int64_t stage = 0; stage < schedule.num_stages(); ++stage)
    {
        const SimulatedStage& timed = done.stages[static_cast<std::size_t>(stage)];
        nlohmann::ordered_json row;
        row["stage"] = stage;
        row["in_flight"] = max_in_flight(schedule, stage);
        row["idle_inside"] = timed.idle_inside;
        row["actions"] = nlohmann::ordered_json::array();
        for (const TimedWork& work : timed.work)
        {
            nlohmann::ordered_json action;
            action["kind"] = action_kind_name(work.action.kind);
            action["micro_batch"] = work.action.micro_batch;
            action["chunk"] = work.action.chunk;
            action["start"] = work.start;
            action["end"] = work.end;
            row["actions"].push_back(std::move(action));
        }
        out["rows"].push_back(std::move(row));
    }
    return out.dump(1) + "\n";
}

}  // namespace plimsoll
