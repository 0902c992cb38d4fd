#pragma once
/// What plimsoll-reshard prints about checkpoints.

#include <string>
#include <vector>

#include "base/units.hpp"
#include "io/checkpoint.hpp"
#include "io/reshard.hpp"

namespace plimsoll
{

enum class OutputKind { text, json };

/// "1.2 GB".
inline std::string storage(std::int64_t bytes) { return format_storage(static_cast<double>(bytes)); }

/// Header, scalars, files and the tree of tensors.
std::string inspect_report(const CheckpointReader& reader, OutputKind kind);
/// Figures of a tensor: "model/NAME" in one state, NAME in all that hold it. @throws UsageError naming the nearest one
std::string tensor_report(const CheckpointReader& reader, const std::string& name, OutputKind kind);
std::string verify_report(const std::string& path, const std::string& level, const VerifyReport& report, OutputKind kind);

/// Source, target, copies and memory, one line each.
std::string plan_report(const ReshardSummary& summary);
/// What was proven and committed, and how fast it went.
std::string result_report(const ReshardSummary& summary, const ReshardResult& result, double seconds);
/// Both as one JSON object; `result` is nullptr for a dry run.
std::string rewrite_json(const ReshardSummary& summary, const ReshardResult* result, double seconds);

}  // namespace plimsoll
