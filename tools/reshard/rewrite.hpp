#pragma once
/// plimsoll-reshard IN OUT: the rewrite itself.

#include <cstdint>
#include <string>

#include "base/run_tool.hpp"
#include "comm/communicator.hpp"
#include "layout/run_config.hpp"

namespace plimsoll
{

struct RewriteOptions
{
    RunConfig config;        ///< [layout] is the target; [cluster] memory-limit
    std::int64_t step = -1;  ///< the newest
    bool dry_run = false;
    bool json = false;
};

/// By all ranks of `world`; rank 0 looks at paths and prints.
ExitCode run_rewrite(const RewriteOptions& options, const std::string& in, const std::string& out, Communicator& world);

/// The tool's command without a name. `options` outlives it.
Command rewrite_command(RewriteOptions& options);

}  // namespace plimsoll
