#include "base/output_folder.hpp"

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <unistd.h>

#include "base/error.hpp"
#include "base/text_file.hpp"

namespace plimsoll
{

namespace fs = std::filesystem;

namespace
{

/// "runs/a/" as "/home/me/runs/a".
fs::path whole(const std::string& path)
{
    const fs::path normal = fs::absolute(path).lexically_normal();
    return normal.has_filename() || !normal.has_relative_path() ? normal : normal.parent_path();
}

bool is_there(const fs::path& path)
{
    std::error_code error;
    return fs::exists(path, error);
}

}  // namespace

std::string existing_folder(const std::string& path)
{
    fs::path at = whole(path);
    while (!is_there(at) && at.has_relative_path()) { at = at.parent_path(); }
    return at.string();
}

std::string first_missing_folder(const std::string& path)
{
    std::string missing;
    for (fs::path at = whole(path); !is_there(at) && at.has_relative_path(); at = at.parent_path()) { missing = at.string(); }
    return missing;
}

void require_writable(const std::string& path, const std::string& hint)
{
    const std::string folder = existing_folder(path);
    std::error_code error;
    int reason = 0;
    if (!fs::is_directory(folder, error)) { reason = ENOTDIR; }
    else if (::faccessat(AT_FDCWD, folder.c_str(), W_OK | X_OK, AT_EACCESS) != 0) { reason = errno; }
    VALIDATE(reason == 0, IoError, "cannot write to '{}' ('{}': {}). {}", path, folder, system_reason(reason), hint);
}

}  // namespace plimsoll
