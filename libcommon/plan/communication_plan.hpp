#pragma once
/// What a rank sends in one step, by group: a fold over the step program.

#include <cstdint>
#include <map>
#include <string>

#include "plan/step_program.hpp"

namespace plimsoll
{

struct PlannedCommunication
{
    std::int64_t calls = 0;  ///< collectives, sends and receives
    std::int64_t bytes = 0;  ///< sent: sent_bytes() of layout/collective_cost.hpp
};

/// By the group's name ("dp", "tp"); groups that send nothing are left out. One step of `inputs.layout.accumulation()` micro-batches.
std::map<std::string, PlannedCommunication> plan_communication(const StepInputs& inputs);

/// Members of a group.
std::int64_t group_size(const StepInputs& inputs, GroupKind group);

}  // namespace plimsoll
