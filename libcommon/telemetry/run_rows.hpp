#pragma once
/// The rows of metrics.jsonl taken into a RunSummary. For run_reader's own use.

#include "telemetry/run_reader.hpp"

namespace plimsoll
{

/// Fills what comes from metrics.jsonl of run.path, in two passes over the file.
/// @throws UsageError without a step; ConfigError, FormatError naming file and line
void read_rows(RunSummary& run, const RunReadOptions& options);

}  // namespace plimsoll
