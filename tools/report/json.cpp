#include <cmath>
#include <nlohmann/json.hpp>

#include "page.hpp"

namespace plimsoll
{

namespace
{

using Json = nlohmann::ordered_json;

/// JSON has no NaN: null.
Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json first_last(const Curve& curve)
{
    if (curve.count() + curve.not_finite() == 0) { return nullptr; }
    return {{"first", number(curve.first_value())},
            {"last", number(curve.last_value())},
            {"last_step", curve.last_value_step()},
            {"not_finite", curve.not_finite()}};
}

Json categories_json(const std::vector<MemoryCategory>& categories)
{
    Json list = Json::array();
    for (const MemoryCategory& category : categories)
    {
        list.push_back({{"name", category.name}, {"bytes", category.bytes}});
    }
    return list;
}

Json phases_json(const RunSummary& run)
{
    Json phases = Json::object();
    for (std::size_t k = 0; k < run.phases.size(); ++k)
    {
        double sum = 0;
        for (const PhaseBucket& bucket : run.phase_buckets) { sum += bucket.phase_seconds[k]; }
        phases[run.phases[k]] = sum;
    }
    return phases;
}

Json attempts_json(const RunSummary& run)
{
    Json list = Json::array();
    for (const RunAttempt& attempt : run.attempts)
    {
        list.push_back({{"attempt", attempt.number},
                        {"first_step", attempt.first_step},
                        {"last_step", attempt.last_step},
                        {"repeated", attempt.repeated},
                        {"begin", attempt.begin},
                        {"end", attempt.end}});
    }
    return list;
}

Json checkpoints_json(const RunSummary& run)
{
    Json list = Json::array();
    for (const RunCheckpoint& save : run.checkpoints)
    {
        list.push_back(
            {{"step", save.step}, {"bytes", save.bytes}, {"seconds", save.seconds}, {"on_disk", save.on_disk}});
    }
    return list;
}

Json memory_json(const RunSummary& run)
{
    const PlanRank* plan = run.largest_plan();
    Json json;
    json["measured_peak_bytes"] = run.peak_bytes > 0 ? Json(run.peak_bytes) : Json(nullptr);
    json["measured_by_category"] = categories_json(run.peak_by_category);
    json["planned_peak_bytes"] = plan == nullptr ? Json(nullptr) : Json(plan->peak_bytes);
    json["planned_rank"] = plan == nullptr ? Json(nullptr) : Json(plan->rank);
    json["planned_by_category"] = plan == nullptr ? Json::array() : categories_json(plan->categories);
    return json;
}

}  // namespace

std::string json_page(const RunSummary& run, const RunFacts& facts)
{
    Json json;
    json["schema_version"] = 1;
    json["run"] = run.name;
    json["path"] = run.path;
    json["state"] = facts.state;
    json["verdict"] = facts.verdict;
    json["exit"] = run.status && run.status->exit >= 0 ? Json(run.status->exit) : Json(nullptr);
    json["reason"] = run.status ? Json(run.status->reason) : Json(nullptr);
    json["first_step"] = run.first_step;
    json["last_step"] = run.last_step;
    json["total_steps"] = run.total_steps > 0 ? Json(run.total_steps) : Json(nullptr);
    json["tokens"] = run.tokens;
    json["loss"] = first_last(run.loss);
    json["val_loss"] = first_last(run.validation);
    if (!json["val_loss"].is_null())
    {
        json["val_loss"]["best"] = number(run.best_validation);
        json["val_loss"]["best_step"] = run.best_validation_step;
    }
    json["tokens_per_second_median"] = run.median_tokens_per_second;
    json["step_seconds"] = run.step_seconds;
    json["phase_seconds"] = phases_json(run);
    json["memory"] = memory_json(run);
    json["attempts"] = attempts_json(run);
    json["repeated_steps"] = run.repeated_steps;
    json["skipped_updates"] = run.skipped_updates;
    json["checkpoints"] = {{"saved", run.num_checkpoints},
                           {"failed", run.num_failed_saves},
                           {"seconds", run.checkpoint_seconds},
                           {"newest", checkpoints_json(run)}};
    json["notes"] = facts.notes;
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace plimsoll
