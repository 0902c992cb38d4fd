#pragma once
/// Finds a model's config.json by path or by its well-known name.

#include <string>
#include <vector>

namespace plimsoll
{

/// Folders with well-known models, in order: $PLIMSOLL_MODELS, <prefix>/share/plimsoll/models beside the executable,
/// the source tree's jobs/models.
std::vector<std::string> model_folders();

/// Known names, sorted: "gpt2", "llama-3.1-8b", ...
std::vector<std::string> known_models();

/// Absolute path of the config.json that `name` means: a file or a folder with a config.json, relative to
/// `directory`, else a known name. @throws ConfigError naming where it looked and the nearest known name
std::string find_model(const std::string& name, const std::string& directory);

}  // namespace plimsoll
