#include "base/run_tool.hpp"
#include "build_id.hpp"

namespace plimsoll
{

std::string version_with_build() { return PLIMSOLL_VERSION " (build " PLIMSOLL_BUILD_ID ")"; }

}  // namespace plimsoll
