#pragma once
/// What plimsoll-reshard prints about checkpoints.

#include <string>
#include <vector>

#include "io/checkpoint.hpp"

namespace plimsoll
{

enum class OutputKind { text, json };

/// Header, scalars, files and the tree of tensors.
std::string inspect_report(const CheckpointReader& reader, OutputKind kind);
/// Figures of a tensor: "model/NAME" in one state, NAME in all that hold it. @throws UsageError naming the nearest one
std::string tensor_report(const CheckpointReader& reader, const std::string& name, OutputKind kind);
std::string verify_report(const std::string& path, const std::string& level, const VerifyReport& report, OutputKind kind);

}  // namespace plimsoll
