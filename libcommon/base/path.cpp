#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <glob.h>

#include "base/cli.hpp"

namespace plimsoll
{

std::string resolve_path(const std::string& path, const std::string& directory)
{
    std::filesystem::path result(path);
    const char* home = std::getenv("HOME");
    if (home != nullptr && (path == "~" || path.rfind("~/", 0) == 0)) { result = std::string(home) + path.substr(1); }
    if (result.is_relative()) { result = std::filesystem::path(directory) / result; }
    std::string text = std::filesystem::absolute(result).lexically_normal().string();
    while (text.size() > 1 && text.back() == '/') { text.pop_back(); }
    return text;
}

namespace
{

bool has_wildcard(const std::string& text) { return text.find_first_of("*?[") != std::string::npos; }

/// A folder whose own name holds wildcards must match only itself.
std::string without_wildcards(const std::string& directory)
{
    std::string result;
    for (const char c : directory)
    {
        if (c == '*' || c == '?' || c == '[') { result += std::string("[") + c + "]"; }
        else { result += c; }
    }
    return result;
}

}  // namespace

std::vector<std::string> expand_glob(const std::string& pattern)
{
    std::error_code ignored;
    if (!has_wildcard(pattern) || std::filesystem::exists(pattern, ignored)) { return {pattern}; }
    glob_t found = {};
    // A folder that is not there matches nothing; one that cannot be read would silently give a part of the files.
    const auto stop = [](const char*, int error) { return error == ENOENT || error == ENOTDIR ? 0 : 1; };
    const int rc = ::glob(pattern.c_str(), 0, stop, &found);
    std::vector<std::string> result;
    for (std::size_t i = 0; rc == 0 && i < found.gl_pathc; ++i) { result.emplace_back(found.gl_pathv[i]); }
    ::globfree(&found);
    VALIDATE(rc == 0 || rc == GLOB_NOMATCH, ConfigError, "cannot search for '{}' (a folder is not readable)", pattern);
    VALIDATE(!result.empty(), ConfigError, "no file matches '{}'", pattern);
    return result;
}

std::vector<std::string> expand_paths(const OptionValue& value)
{
    std::vector<std::string> result;
    const auto add = [&](std::string path)
    {
        if (std::find(result.begin(), result.end(), path) == result.end()) { result.push_back(std::move(path)); }
    };
    for (const std::string& word : value.words)
    {
        std::error_code ignored;
        std::string path = resolve_path(word, value.directory);
        if (!has_wildcard(word) || std::filesystem::exists(path, ignored))
        {
            add(std::move(path));
            continue;
        }
        const std::string pattern = resolve_path(word, without_wildcards(value.directory));
        try
        {
            for (std::string& match : expand_glob(pattern)) { add(std::move(match)); }
        }
        catch (const ConfigError&)
        {
            if (value.use == Use::needed) { throw; }
            add(std::move(path));
        }
    }
    return result;
}

}  // namespace plimsoll
