#pragma once
/// How much memory this process's machine, container or job has.

#include <cstdint>
#include <string>

namespace plimsoll
{

/// The least of the machine's memory and the limits of the control groups that this process is in (containers, Slurm jobs).
/// 0 when the system does not say.
std::int64_t machine_memory_bytes();

/// The same below other roots than "/proc" and "/sys/fs/cgroup".
std::int64_t machine_memory_bytes(const std::string& proc, const std::string& cgroup);

}  // namespace plimsoll
