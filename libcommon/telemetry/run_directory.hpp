#pragma once
/// The directory of one run: runs/<name>/{run.ini, ckpt/, logs/, metrics.jsonl, status.json}.

#include <string>
#include <vector>

#include "base/cli.hpp"

namespace plimsoll
{

/// Holds the directory's lock for its lifetime: two runs never write one directory. Of a run with many ranks only
/// rank 0 makes one. Not thread-safe.
class RunDirectory
{
  public:
    /// Makes the directory with ckpt/ and logs/ and locks it.
    /// @throws UsageError naming host and process of the holder when another run has it, IoError
    explicit RunDirectory(const std::string& path);
    /// Whether a run could have the directory now; makes nothing. @throws as the constructor
    static void check(const std::string& path);
    /// Unlocks. Folders that it made for a start that did not begin_attempt() go again.
    ~RunDirectory();
    RunDirectory(const RunDirectory&) = delete;
    RunDirectory& operator=(const RunDirectory&) = delete;

    const std::string& path() const { return path_; }
    /// False where the file system knows no locks: then nothing guards against a second run.
    bool is_locked() const { return is_locked_; }
    std::string checkpoints() const { return path_ + "/ckpt"; }
    std::string logs() const { return path_ + "/logs"; }
    std::string metrics() const { return path_ + "/metrics.jsonl"; }
    std::string status() const { return path_ + "/status.json"; }
    std::string run_file() const { return path_ + "/run.ini"; }

    /// 1 for the first start in this directory, then one more for each that began.
    int attempt() const { return attempt_; }
    /// Counts this start. Before it nothing of an earlier start may be changed: a refusal leaves all as it was.
    void begin_attempt();

    /// What differs between the directory's run.ini and `snapshot` (OptionSet::snapshot()); empty without a run.ini.
    std::vector<ConfigChange> changes(const std::string& snapshot) const;
    /// Writes run.ini; one with other values is kept as run.ini.N (N = 1, 2, ...).
    void write_snapshot(const std::string& snapshot);

  private:
    void lock();
    void remove_made();

    std::string path_;
    std::string made_;  ///< the outermost folder that was missing; empty: none
    int lock_fd_ = -1;
    bool is_locked_ = true;
    bool has_begun_ = false;
    int attempt_ = 0;
};

}  // namespace plimsoll
