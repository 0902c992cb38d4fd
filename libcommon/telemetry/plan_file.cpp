#include <limits>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/text_file.hpp"
#include "telemetry/run_reader.hpp"

namespace plimsoll
{

namespace
{

using Json = nlohmann::ordered_json;

const Json& member(const Json& object, const char* key, const std::string& where)
{
    VALIDATE(object.is_object(), FormatError, "{} is not an object", where);
    const auto found = object.find(key);
    VALIDATE(found != object.end(), FormatError, "{}: '{}' is missing", where, key);
    return *found;
}

std::int64_t whole(const Json& object, const char* key, const std::string& where)
{
    const Json& value = member(object, key, where);
    VALIDATE(value.is_number_integer() && value.get<std::int64_t>() >= 0, FormatError, "{}: '{}' is not a whole number",
             where, key);
    return value.get<std::int64_t>();
}

const Json& list(const Json& object, const char* key, const std::string& where)
{
    const Json& value = member(object, key, where);
    VALIDATE(value.is_array(), FormatError, "{}: '{}' is not a list", where, key);
    return value;
}

std::string layout_text(const Json& layout, const std::string& path)
{
    static constexpr std::pair<const char*, const char*> degrees[] = {
        {"dp", "dp"}, {"tp", "tp"}, {"pp", "pp"}, {"zero", "zero"}, {"micro_batch", "micro-batch"}, {"global_batch", "global-batch"}};
    std::string text;
    for (const auto& degree : degrees)
    {
        text += fmt::format("{}{} {}", text.empty() ? "" : " ", degree.second, whole(layout, degree.first, path + ": layout"));
        if (degree.first != degrees[1].first || !layout.contains("sequence_parallel")) { continue; }
        const Json& cut = layout["sequence_parallel"];
        if (cut.is_boolean() && cut.get<bool>()) { text += " (sequence parallel)"; }
    }
    return text;
}

}  // namespace

PlanFile read_plan_file(const std::string& path)
{
    const Json json = Json::parse(load_text(path, "plan"), nullptr, false);
    VALIDATE(!json.is_discarded(), FormatError, "{}: not JSON", path);
    const std::int64_t schema = whole(json, "schema", path);
    VALIDATE(schema == 1, FormatError, "{}: schema {} is not known (only 1). use a newer plimsoll-report", path,
             schema);
    PlanFile plan;
    if (json.contains("attempt")) { plan.attempt = static_cast<int>(whole(json, "attempt", path)); }
    if (json.contains("layout")) { plan.layout = layout_text(json["layout"], path); }
    std::vector<PlanRank>& ranks = plan.ranks;
    for (const Json& item : list(json, "ranks", path))
    {
        const std::string where = fmt::format("{}: ranks[{}]", path, ranks.size());
        PlanRank rank;
        rank.rank = whole(item, "rank", where);
        rank.peak_bytes = whole(item, "peak_bytes", where);
        for (const Json& category : list(item, "categories", where))
        {
            const std::string inner = fmt::format("{}.categories[{}]", where, rank.categories.size());
            const Json& name = member(category, "name", inner);
            VALIDATE(name.is_string(), FormatError, "{}: 'name' is not a text", inner);
            rank.categories.push_back({name.get<std::string>(), whole(category, "bytes", inner)});
        }
        ranks.push_back(std::move(rank));
    }
    return plan;
}

}  // namespace plimsoll
