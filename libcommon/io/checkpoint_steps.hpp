#pragma once
/// Directories of a checkpoint root: temporary, committed, replaced, removed. For io's own files.

#include <cstdint>
#include <string>
#include <vector>

namespace plimsoll::checkpoint
{

struct StepEntry
{
    std::int64_t step = 0;
    std::string path;
    std::int64_t sequence = 0; ///< of the manifest; the largest value when it cannot be read
};

/// Committed steps under `root`, the newest commit first. A step that was moved aside by a replacement that did not finish
/// counts while nothing stands at its place.
std::vector<StepEntry> list_steps(const std::string& root);

/// Makes a place for a new commit: finishes or undoes what dead writers left behind. Directories of living ones are locked.
void clean_root(const std::string& root);

/// root/.tmp_step_N.<uuid>, locked against clean_root(); removed by the destructor unless published.
class TemporaryStep
{
  public:
    TemporaryStep(std::string root, std::int64_t step, std::string uuid);
    ~TemporaryStep();
    TemporaryStep(const TemporaryStep&) = delete;
    TemporaryStep& operator=(const TemporaryStep&) = delete;

    const std::string& path() const { return path_; }
    /// Steps 7 and 8 of the protocol: the directory becomes root/step_N in one instant, then `latest` names it. An older
    /// step N stays visible until then and is removed afterwards. Returns the new path.
    std::string publish();

  private:
    std::string root_;
    std::int64_t step_;
    std::string uuid_;
    std::string path_;
    int lock_ = -1;
    bool owned_ = true; ///< path_ is ours to remove
};

/// Names of the crash points that a save passes, in this order; then those of retention. "file." ones pass several times.
const std::vector<std::string>& crash_points();

}  // namespace plimsoll::checkpoint
