#pragma once
/// inspect and verify for the files of other tools.

#include <optional>
#include <string>

#include "inspect.hpp"
#include "io/token_formats/token_files.hpp"

namespace plimsoll
{

/// What files in the format of another tool say of themselves.
std::string token_files_text(TokenFormat format, const std::string& path, OutputKind kind);

}  // namespace plimsoll
