#pragma once
/// The sections of the run file that say what is read: [data], [data.NAME], [eval], [eval.NAME].

#include "base/cli.hpp"
#include "layout/run_config.hpp"

namespace plimsoll
{

void declare_data(OptionSet& options, RunConfig::Data& data);
void declare_eval(OptionSet& options, RunConfig::Eval& eval);

}  // namespace plimsoll
