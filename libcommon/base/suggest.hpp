#pragma once
/// "Did you mean": the nearest of a list of names.

#include <string>
#include <string_view>
#include <vector>

namespace plimsoll
{

/// Edit distance with swaps of neighbours (optimal string alignment); '_' and '-' are the same, case is ignored.
int edit_distance(std::string_view a, std::string_view b);

/// The candidate with the smallest distance (the first of equals); empty when `candidates` is.
std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates);

}  // namespace plimsoll
