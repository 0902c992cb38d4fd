#pragma once
/// What this version does not do yet, in one table, and the words of other toolkits.

#include "base/cli.hpp"
#include "layout/run_config.hpp"

namespace plimsoll
{

/// Limits every declared key of the table to its built values; other values are refused by name. May be called again
/// after more keys were declared.
void limit_run_config(OptionSet& options);

/// Answers for options of other toolkits that are no plain renaming.
void add_run_config_hints(OptionSet& options);

}  // namespace plimsoll
