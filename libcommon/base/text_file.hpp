#pragma once
/// Small text files: run files, status, locks. Bulk data goes through io/file.

#include <string>
#include <string_view>

namespace plimsoll
{

/// "no such file or directory": the system's text for an errno value, lower case.
std::string system_reason(int error);

/// The whole file. @throws ConfigError "cannot read WHAT 'path' (no such file or directory)"
std::string load_text(const std::string& path, std::string_view what);

/// Replaces `path` as a whole: a reader sees the old or the new text (tmp, fsync, rename). @throws IoError
void replace_text(const std::string& path, std::string_view text);

}  // namespace plimsoll
