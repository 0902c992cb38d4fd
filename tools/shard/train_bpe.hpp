#pragma once
/// plimsoll-shard train-bpe.

#include "base/run_tool.hpp"

namespace plimsoll
{

Command train_bpe_command();

}  // namespace plimsoll
