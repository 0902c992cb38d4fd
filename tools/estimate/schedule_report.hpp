#pragma once
/// A pipeline's schedule as people and machines read it. Forward, backward_input and backward_weight of a chunk take one slot each,
/// messages none.

#include <string>

#include "layout/pipeline_schedule.hpp"

namespace plimsoll
{

/// A row per stage, a column per slot: "F3" is the forward of micro-batch 3, "B3" its backward or the input half, "W3" the weight
/// half; from two chunks on with the chunk's letter ("F3b").
std::string schedule_text(const PipelineSchedule& schedule);

/// Schema 1: shape, bubble, and per stage in_flight and the timed actions.
std::string schedule_json(const PipelineSchedule& schedule);

}  // namespace plimsoll
