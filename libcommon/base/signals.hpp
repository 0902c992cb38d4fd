#pragma once
/// Signals that mean "finish the step, save, exit 75": TERM and USR2, USR1 only when asked for.

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

  private:
    struct Saved
    {
        int number = 0;
        struct sigaction action = {};
    };
    std::array<Saved, 3> saved_{};
    std::size_t num_saved_ = 0;
};

}  // namespace plimsoll
