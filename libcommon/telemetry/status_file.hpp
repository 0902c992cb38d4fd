#pragma once
/// status.json: how a run stands, for scripts that decide whether to start it again.
///
///     {"schema": 1, "state": "stopped", "exit": 75, "reason": "SIGTERM", "step": 40, "hint": "...", "attempt": 2, ...}

#include <cstdint>
#include <string>
#include <utility>

#include "base/error.hpp"

namespace plimsoll
{

enum class RunState
{
    running,
    done,
    stopped,
    failed
};

struct RunStatus
{
    RunState state = RunState::running;
    int exit = -1;          ///< -1 while running (null in the file)
    std::string reason;     ///< "SIGTERM", "--stop-at-step 40", the error's text
    std::int64_t step = 0;  ///< optimizer steps done; while running at the last table row or save
    std::string hint;       ///< what to do next
    int attempt = 1;
    // Who wrote it and when: set by read_status(), empty or 0 when the file does not say.
    std::string host;
    int process = 0;
    std::string time;  ///< UTC
};

/// What write_status() writes: JSON with host, process and time added.
std::string status_text(const RunStatus& status);
/// Replaces the file as a whole (tmp + fsync + rename). @throws IoError
void write_status(const std::string& path, const RunStatus& status);
/// For how far a run has come, again and again: a reader sees the old or the new text, a machine that loses power perhaps the old
/// one. A failure is passed over, since the metrics of the same step would fail too and say so.
void write_progress(const std::string& path, const RunStatus& status);
/// "problem (reason). hint" at the end of its reason; the hint is empty when there is none.
std::pair<std::string, std::string> split_hint(const std::string& message);
/// @throws IoError, FormatError
RunStatus read_status(const std::string& path);
/// The state of an end: done for 0, stopped for 75, else failed.
RunState state_of(ExitCode code);

}  // namespace plimsoll
