#include "layout/model_files.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/cli.hpp"
#include "base/error.hpp"
#include "base/suggest.hpp"

namespace plimsoll
{

namespace fs = std::filesystem;

std::vector<std::string> model_folders()
{
    std::vector<std::string> candidates;
    if (const char* given = std::getenv("PLIMSOLL_MODELS")) { candidates.emplace_back(given); }
    std::error_code ignored;
    const fs::path executable = fs::read_symlink("/proc/self/exe", ignored);
    if (!executable.empty())
    {
        candidates.push_back((executable.parent_path().parent_path() / "share/plimsoll/models").string());
    }
    candidates.emplace_back(PLIMSOLL_SOURCE_MODELS);
    std::vector<std::string> folders;
    for (const std::string& folder : candidates)
    {
        if (fs::is_directory(folder, ignored)) { folders.push_back(folder); }
    }
    return folders;
}

std::vector<std::string> known_models()
{
    std::vector<std::string> names;
    for (const std::string& folder : model_folders())
    {
        std::error_code ignored;
        for (const fs::directory_entry& entry : fs::directory_iterator(folder, ignored))
        {
            if (entry.path().extension() == ".json") { names.push_back(entry.path().stem().string()); }
        }
    }
    std::sort(names.begin(), names.end());
    names.erase(std::unique(names.begin(), names.end()), names.end());
    return names;
}

std::string find_model(const std::string& name, const std::string& directory)
{
    const std::string path = resolve_path(name, directory);
    std::error_code ignored;
    if (fs::is_regular_file(path, ignored)) { return path; }
    if (fs::is_regular_file(path + "/config.json", ignored)) { return path + "/config.json"; }
    VALIDATE(!fs::is_directory(path, ignored), ConfigError, "'{}' is a folder without config.json", path);
    for (const std::string& folder : model_folders())
    {
        const fs::path known = fs::path(folder) / (name + ".json");
        if (name.find('/') == std::string::npos && fs::is_regular_file(known, ignored)) { return known.string(); }
    }
    const std::vector<std::string> names = known_models();
    const std::string nearest = nearest_name(name, names);
    throw ConfigError(fmt::format("model '{}' is neither a file (looked for '{}') nor a known model ({}){}", name, path,
                                  fmt::join(names, " "), nearest.empty() ? "" : ". nearest: " + nearest));
}

}  // namespace plimsoll
