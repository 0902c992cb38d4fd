#pragma once
/// Which step of a directory the user means.

#include <cstdint>
#include <string>
#include <vector>

namespace plimsoll
{

/// `dir`: a step, a directory with steps, or a run directory. `step` < 0: the newest valid one, with a line in `warnings` for
/// each newer one that had to be skipped. @throws UsageError when there is none
std::string choose_step(const std::string& dir, std::int64_t step, std::vector<std::string>& warnings);

}  // namespace plimsoll
