#pragma once
/// Communicators that tell the recorder of the calling thread what is started and waited for.

#include "comm/rank_groups.hpp"

namespace plimsoll
{

/// Wraps the communicators of all groups with more than one member. Call before anything holds one of them. Works that are
/// under way when a recording ends are waited for without a note.
void record_collectives(RankGroups& groups);

}  // namespace plimsoll
