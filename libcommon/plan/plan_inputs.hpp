#pragma once
/// From a run file to what the plan needs. Estimator and trainer ask the same functions, so they speak of the same run.

#include <cstdint>
#include <string>

#include "layout/run_config.hpp"
#include "plan/memory_plan.hpp"

namespace plimsoll
{

/// dp auto is world / (tp pp cp), at least 1; virtual stages as the schedule needs where none are given. Not validated.
ParallelLayout parallel_layout(const RunConfig& config, std::int64_t world);

/// Whether the run stops to validate, which needs memory of its own.
enum class Validation { none, planned };

/// Of ranks that exchange messages. `threads` of a rank. @pre parameter_dtype() knows the precision
StepPolicies step_policies(const RunConfig& config, std::int64_t threads, Validation validation);

/// What a rank may use: [cluster] memory-limit, else the device memory of [cluster] file, else machine / local ranks.
/// `machine_bytes` 0: unknown, then there is no limit. @throws ConfigError for a broken cluster file
MemoryLimit memory_limit(const RunConfig::Cluster& cluster, std::int64_t machine_bytes, std::int64_t local_ranks);
/// Ranks that share a machine in a run that is not started yet: all of them, unless the cluster file says how many a node takes.
std::int64_t planned_local_ranks(const RunConfig::Cluster& cluster, std::int64_t world);

/// Everything that keeps the layout from running, of layout, model and sequence length, in one message; empty when sound.
std::string layout_faults(const ParallelLayout& layout, const ModelSpec& model, std::int64_t seq_len, std::int64_t world);

}  // namespace plimsoll
