#pragma once
/// What [run] deterministic asks of a job beside the settings that run_config refuses, and what is compared between ranks.

#include <string>

#include "comm/communicator.hpp"
#include "engine/replica_check.hpp"
#include "nn/sharded_params.hpp"

namespace plimsoll::nn
{

/// What decides how kernels round on this rank: "Intel(R) Xeon(R) ..., AVX512, 2 threads".
std::string arithmetic_text();

/// Collective. Copies on ranks of unlike processors or thread counts would drift apart by rounding.
/// @throws ConfigError on all ranks, naming the first rank that is unlike rank 0
void require_equal_arithmetic(Communicator& world);

/// What a rank has of a unit's parameters between two steps, for ReplicaCheck.
HeldParams held_params(const ShardedParams& params, std::int64_t unit);

/// Whether a run that continues with another value of this key ([section.key]) has other bits than one that kept it.
bool changes_bits(const std::string& section_dot_key);

}  // namespace plimsoll::nn
