#pragma once
/// What a cluster's JSON file says of its machines ([cluster] file).
///
///     {
///       "schema": 1,
///       "name": "workstation",
///       "device_memory": "12GiB",      memory that one rank may use: of its GPU, or its share of the node
///       "devices_per_node": 2,         ranks of a node
///       "links": {}, "peaks": {}       speeds, for tools that predict time
///     }
///
/// `device_memory` is required; other fields are errors, so that a mistyped one is found.

#include <cstdint>
#include <string>

namespace plimsoll
{

struct ClusterFile
{
    std::string name;                   ///< default: file stem
    std::int64_t device_memory = 0;     ///< bytes
    std::int64_t devices_per_node = 0;  ///< 0: not said
};

/// @throws ConfigError naming file and field
ClusterFile parse_cluster_file(const std::string& json_text, const std::string& path);
ClusterFile read_cluster_file(const std::string& path);

}  // namespace plimsoll
