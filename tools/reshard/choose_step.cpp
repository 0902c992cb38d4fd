#include "choose_step.hpp"

#include "base/error.hpp"
#include "io/checkpoint.hpp"
#include "io/file.hpp"

namespace plimsoll
{

std::string choose_step(const std::string& dir, std::int64_t step, std::vector<std::string>& warnings)
{
    VALIDATE(path_exists(dir), UsageError, "cannot open '{}' (no such file or directory)", dir);
    VALIDATE(is_directory(dir), UsageError, "'{}' is a file, not the directory of a checkpoint", dir);
    if (step < 0)
    {
        const std::string found = find_checkpoint(dir, &warnings);
        VALIDATE(!found.empty(), UsageError, "no checkpoint in '{}' (no committed step)", dir);
        return found;
    }
    for (const std::string& root : {dir, dir + "/ckpt"})
    {
        if (path_exists(step_path(root, step))) { return step_path(root, step); }
    }
    const std::string root = is_directory(dir + "/ckpt") ? dir + "/ckpt" : dir;
    throw UsageError(fmt::format("no step {} in '{}'. committed steps: {}", step, dir, fmt::join(committed_steps(root), " ")));
}

}  // namespace plimsoll
