#include "plan/plan_inputs.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "layout/cluster_file.hpp"
#include "layout/precision.hpp"

namespace plimsoll
{

ParallelLayout parallel_layout(const RunConfig& config, std::int64_t world)
{
    ParallelLayout layout;
    layout.tp = config.layout.tp;
    layout.pp = config.layout.pp;
    layout.cp = config.layout.cp;
    layout.ep = config.layout.ep;
    const std::int64_t inner = layout.tp * layout.pp * layout.cp;
    layout.dp = config.layout.dp > 0 ? config.layout.dp : std::max<std::int64_t>(1, world / inner);
    layout.zero_stage = config.layout.zero;
    layout.axis_order = parse_axis_order(config.layout.axis_order);
    layout.dp_shard = config.layout.dp_shard;
    layout.bucket_bytes = config.layout.bucket;
    layout.resident_bytes = config.layout.resident;
    layout.prefetch = config.layout.prefetch ? Prefetch::on : Prefetch::off;
    layout.sequence_parallel = config.layout.sequence_parallel;
    layout.micro_batch = config.layout.micro_batch;
    layout.global_batch = config.layout.global_batch;
    layout.schedule = parse_pipeline_kind(config.layout.schedule);
    layout.split = parse_stage_split(config.layout.pp_split);
    layout.virtual_stages =
        config.layout.virtual_stages > 0 ? config.layout.virtual_stages : default_num_chunks(layout.schedule);
    return layout;
}

StepPolicies step_policies(const RunConfig& config, std::int64_t threads, Validation validation)
{
    StepPolicies policies;
    policies.dtype = parameter_dtype(config.train.precision);
    policies.seq_len = config.data.seq_len;
    policies.loss_chunks = config.train.loss_chunks;
    policies.hidden_dropout = config.train.hidden_dropout;
    policies.threads = threads;
    policies.transport = Transport::messages;
    if (validation == Validation::planned)
    {
        policies.eval_micro_batch = config.eval.micro_batch > 0 ? config.eval.micro_batch : config.layout.micro_batch;
    }
    return policies;
}

std::int64_t planned_local_ranks(const RunConfig::Cluster& cluster, std::int64_t world)
{
    if (cluster.file.empty()) { return world; }
    const std::int64_t per_node = read_cluster_file(cluster.file).devices_per_node;
    return per_node > 0 ? std::min(per_node, world) : world;
}

MemoryLimit memory_limit(const RunConfig::Cluster& cluster, std::int64_t machine_bytes, std::int64_t local_ranks)
{
    MemoryLimit limit;
    if (cluster.memory_limit > 0)
    {
        limit.bytes = cluster.memory_limit;
        limit.source = "memory-limit";
        return limit;
    }
    if (!cluster.file.empty())
    {
        const ClusterFile file = read_cluster_file(cluster.file);
        limit.bytes = file.device_memory;
        limit.source = fmt::format("a device of cluster '{}'", file.name);
        return limit;
    }
    if (machine_bytes <= 0)
    {
        limit.bytes = std::numeric_limits<std::int64_t>::max();
        limit.source = "the system names no limit";
        return limit;
    }
    limit.bytes = machine_bytes / std::max<std::int64_t>(1, local_ranks);
    limit.source = local_ranks > 1 ? fmt::format("memory of this machine / {} ranks", local_ranks) : "memory of this machine";
    return limit;
}

std::string layout_faults(const ParallelLayout& layout, const ModelSpec& model, std::int64_t seq_len, std::int64_t world)
{
    std::vector<std::string> faults = validate(layout, model, world);
    if (model.max_positions > 0 && seq_len > model.max_positions)
    {
        faults.push_back(fmt::format("data.seq-len {} is longer than the model's {} positions", seq_len, model.max_positions));
    }
    for (std::string& fault : token_faults(layout, seq_len)) { faults.push_back(std::move(fault)); }
    return fmt::format("{}", fmt::join(faults, "; "));
}

}  // namespace plimsoll
