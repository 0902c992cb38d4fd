#pragma once
/// Layouts of the same world that fit a limit, and the line with which a run that does not fit is refused.

#include <string>
#include <vector>

#include "plan/memory_plan.hpp"

namespace plimsoll
{

struct LayoutChoice
{
    ParallelLayout layout;
    std::int64_t peak_bytes = 0;
    int changes = 0;      ///< of: mesh (dp, tp, pp), zero, micro-batch
    std::string options;  ///< "--micro-batch 2", "--tp 4 --dp 2": what differs from the request
};

struct LayoutSearch
{
    std::vector<LayoutChoice> fitting;  ///< best first
    LayoutChoice smallest;              ///< of all, the one that needs least
    std::int64_t tried = 0;
};

/// All valid products dp tp pp of the plan's world, with its micro-batch and every smaller one that divides it, with its ZeRO
/// stage and stage 1. Order of those that fit: fewest changes, then the least of tp x pp (less communication), then the larger
/// micro-batch, then the lower pp, then the lower peak.
LayoutSearch search_layouts(const MemoryPlan& plan, const MemoryLimit& limit);

/// "plan needs 83.1 GiB on stage 1 (limit 80.0 GiB; activations 41.0, optimizer 18.9, loss 9.8 GiB). fits: --micro-batch 1
/// (55.3 GiB), --tp 4 --dp 2 (61.0 GiB)", or what needs least when nothing fits.
std::string refusal_text(const MemoryPlan& plan, const MemoryLimit& limit);

}  // namespace plimsoll
