#pragma once
/// What this version does not do yet, in one table, and the words of other toolkits.

#include <cstddef>

#include "base/cli.hpp"
#include "layout/run_config.hpp"

namespace plimsoll
{

/// Limits every declared key of the table to its built values; other values are refused by name. May be called again
/// after more keys were declared.
void limit_run_config(OptionSet& options);

/// @throws ConfigError for more training data sources than this version mixes
void check_num_sources(std::size_t num_sources);

/// Answers for options of other toolkits that are no plain renaming.
void add_run_config_hints(OptionSet& options);

}  // namespace plimsoll
