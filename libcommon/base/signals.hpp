#pragma once
/// Signals that mean "finish the step, save, exit 75": INT, TERM and USR2, USR1 only when asked for. An INT or TERM after
/// another of these two ends the process at once; a launcher may pass on what the terminal sent already, so those that come
/// within a second are one.

#include <array>
#include <csignal>
#include <cstddef>
#include <string>

namespace plimsoll
{

enum class Usr1
{
    untouched,
    stops
};

/// Installs handlers for its lifetime and restores the old ones. At most one exists at a time.
/// @throws InternalError when a second one is made, IoError when the system refuses
class StopSignals
{
  public:
    explicit StopSignals(Usr1 usr1);
    ~StopSignals();
    StopSignals(const StopSignals&) = delete;
    StopSignals& operator=(const StopSignals&) = delete;

    /// Whether one came. Any thread, any time.
    bool requested() const;
    /// "SIGTERM" of the first one that came, else empty.
    std::string name() const;

    /// What a process that is ended at once leaves behind: `line` on stderr and `text` as the whole of the file `path`; without
    /// a path nothing, after giving the process that has one the time to write. May be called again with newer text; too long
    /// ones are left out. The exit code is 1.
    void set_last_words(const std::string& line, const std::string& path, const std::string& text) const;

  private:
    struct Saved
    {
        int number = 0;
        struct sigaction action = {};
    };
    std::array<Saved, 4> saved_{};
    std::size_t num_saved_ = 0;
};

}  // namespace plimsoll
