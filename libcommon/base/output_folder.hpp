#pragma once
/// Folders that a tool will write: judged before anything is made, so that a dry run and a real one say the same.

#include <string>

namespace plimsoll
{

/// The nearest folder on the way to `path` (itself included) that exists.
std::string existing_folder(const std::string& path);

/// The outermost folder on the way to `path` (itself included) that does not exist; empty when all do.
std::string first_missing_folder(const std::string& path);

/// Whether `path` is, or could be made, a folder to write in; makes nothing.
/// @throws IoError "cannot write to 'a/b' ('a': permission denied). HINT"
void require_writable(const std::string& path, const std::string& hint);

}  // namespace plimsoll
