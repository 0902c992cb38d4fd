#pragma once
/// status.json: how a run stands, for scripts that decide whether to start it again.
///
///     {"schema": 1, "state": "stopped", "exit": 75, "reason": "SIGTERM", "step": 40, "hint": "...", "attempt": 2, ...}

#include <cstdint>
#include <string>

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
    std::int64_t step = 0;  ///< optimizer steps done
    std::string hint;       ///< what to do next
    int attempt = 1;
    // Who wrote it and when: set by read_status(), empty or 0 when the file does not say.
    std::string host;
    int process = 0;
    std::string time;  ///< UTC
};

/// Replaces the file as a whole (tmp + fsync + rename), with host, process and time added. @throws IoError
void write_status(const std::string& path, const RunStatus& status);
/// @throws IoError, FormatError
RunStatus read_status(const std::string& path);
/// The state of an end: done for 0, stopped for 75, else failed.
RunState state_of(ExitCode code);

}  // namespace plimsoll
