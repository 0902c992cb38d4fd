#pragma once
/// plimsoll-shard export and import: token shards to the formats of other tools and back.

#include "base/run_tool.hpp"

namespace plimsoll
{

Command export_command();
Command import_command();

}  // namespace plimsoll
