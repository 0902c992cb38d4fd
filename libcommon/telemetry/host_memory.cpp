#include "telemetry/host_memory.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>

namespace plimsoll
{
namespace
{

constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();

std::int64_t total_memory(const std::string& proc)
{
    std::ifstream file(proc + "/meminfo");
    for (std::string line; std::getline(file, line);)
    {
        std::istringstream words(line);
        std::string key;
        std::int64_t kilobytes = 0;
        if (words >> key >> kilobytes && key == "MemTotal:") { return kilobytes * 1024; }
    }
    return no_limit;
}

/// "max" and a missing file are no limit; version 1 writes a number near 2^63.
std::int64_t limit_in(const std::string& path)
{
    std::ifstream file(path);
    std::int64_t bytes = 0;
    return file >> bytes && bytes > 0 ? bytes : no_limit;
}

/// The limits of a group and of all that it lies in. In a container the group may not be visible below the root: then the
/// root itself is the container's group.
std::int64_t limit_of_group(const std::string& root, std::string group, const char* file)
{
    std::int64_t least = limit_in(root + "/" + file);
    while (group.size() > 1)
    {
        least = std::min(least, limit_in(root + group + "/" + file));
        group.resize(group.rfind('/'));
    }
    return least;
}

std::int64_t group_limit(const std::string& proc, const std::string& cgroup)
{
    std::int64_t least = no_limit;
    std::ifstream file(proc + "/self/cgroup");
    for (std::string line; std::getline(file, line);)
    {
        // "0::/path" (version 2) or "5:memory:/path".
        const std::size_t first = line.find(':');
        const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
        if (second == std::string::npos) { continue; }
        const std::string controllers = line.substr(first + 1, second - first - 1);
        const std::string group = line.substr(second + 1);
        if (controllers.empty()) { least = std::min(least, limit_of_group(cgroup, group, "memory.max")); }
        else if (("," + controllers + ",").find(",memory,") != std::string::npos)
        {
            least = std::min(least, limit_of_group(cgroup + "/memory", group, "memory.limit_in_bytes"));
        }
    }
    return least;
}

}  // namespace

std::int64_t machine_memory_bytes(const std::string& proc, const std::string& cgroup)
{
    const std::int64_t least = std::min(total_memory(proc), group_limit(proc, cgroup));
    return least == no_limit ? 0 : least;
}

std::int64_t machine_memory_bytes() { return machine_memory_bytes("/proc", "/sys/fs/cgroup"); }

}  // namespace plimsoll
