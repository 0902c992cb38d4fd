#include "layout/cluster_file.hpp"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "base/text_file.hpp"
#include "base/units.hpp"
#include "layout/json_fields.hpp"

namespace plimsoll
{

ClusterFile parse_cluster_file(const std::string& json_text, const std::string& path)
{
    const nlohmann::json object = nlohmann::json::parse(json_text, nullptr, false);
    VALIDATE(!object.is_discarded() && object.is_object(), ConfigError, "{}: not a JSON object", path);
    const std::vector<std::string> known = {"schema", "name", "device_memory", "devices_per_node", "links", "peaks"};
    for (const auto& field : object.items())
    {
        VALIDATE(std::find(known.begin(), known.end(), field.key()) != known.end(), ConfigError,
                 "{}: unknown field '{}'. nearest: {}", path, field.key(), nearest_name(field.key(), known));
    }
    const JsonFields fields(object, path);
    VALIDATE(fields.optional_int("schema", 1, 0, 1000000) == 1, ConfigError, "{}: schema is not known (only 1)", path);
    ClusterFile cluster;
    cluster.name = fields.optional_string("name", std::filesystem::path(path).stem().string());
    const std::string memory = fields.optional_string("device_memory", "");
    VALIDATE(!memory.empty(), ConfigError, "{}: device_memory is missing (memory of one rank, such as \"80GiB\")", path);
    try
    {
        cluster.device_memory = parse_bytes(memory);
    }
    catch (const ConfigError& error)
    {
        throw ConfigError(fmt::format("{}: device_memory: {}", path, error.what()));
    }
    VALIDATE(cluster.device_memory > 0, ConfigError, "{}: device_memory is 0", path);
    cluster.devices_per_node = fields.optional_int("devices_per_node", 0, 1, 1000000);
    return cluster;
}

ClusterFile read_cluster_file(const std::string& path) { return parse_cluster_file(load_text(path, "cluster file"), path); }

}  // namespace plimsoll
