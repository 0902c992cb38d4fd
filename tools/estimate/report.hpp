#pragma once
/// The memory table as people and machines read it.

#include <string>
#include <vector>

#include "plan/layout_search.hpp"
#include "plan/memory_plan.hpp"

namespace plimsoll
{

/// One line of "one knob at a time": a neighbouring layout and what it would need.
struct Knob
{
    std::string name;  ///< "micro-batch 2", "tp 4 dp 2"
    ParallelLayout layout;
    std::int64_t peak_bytes = 0;
};

/// Valid neighbours of the plan's layout in the same world: micro-batch doubled and halved, ZeRO, tp and pp doubled and halved.
std::vector<Knob> turn_knobs(const MemoryPlan& plan);

std::string memory_table(const MemoryPlan& plan, const MemoryLimit& limit, const std::vector<Knob>& knobs,
                         const std::string& precision);

std::string memory_json(const MemoryPlan& plan, const MemoryLimit& limit, const std::vector<Knob>& knobs);

}  // namespace plimsoll
