#pragma once
/// Progress of work that leaves nothing behind when it is stopped: shared by the commands that write a new output from an old one.

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "base/error.hpp"
#include "base/progress.hpp"
#include "base/signals.hpp"

namespace plimsoll
{

/// On stderr. A signal is thrown as Interrupted from update().
class StoppableProgress
{
  public:
    explicit StoppableProgress(std::string label, ProgressUnit unit = ProgressUnit::bytes)
        : label_(std::move(label)),
          unit_(unit)
    {
    }

    /// What follows is another part of the work, with a total of its own.
    void start_phase(std::string label, ProgressUnit unit)
    {
        finish();
        progress_.reset();
        label_ = std::move(label);
        unit_ = unit;
    }

    void update(std::int64_t total, std::int64_t done)
    {
        VALIDATE(!signals_.requested(), Interrupted, "stopped by {} (nothing was written). run the same command again",
                 signals_.name());
        if (!progress_) { progress_ = std::make_unique<Progress>(stderr, kind_of(stderr), label_, unit_, total); }
        progress_->update(done);
    }
    void finish()
    {
        if (progress_) { progress_->finish(); }
    }

  private:
    std::string label_;
    ProgressUnit unit_;
    StopSignals signals_{Usr1::untouched};
    std::unique_ptr<Progress> progress_;
};

}  // namespace plimsoll
