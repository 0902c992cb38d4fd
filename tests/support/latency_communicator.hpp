#pragma once
/// A communicator whose operations end no earlier than a fixed time after they were issued, as over a slow link: time in which others
/// may be under way, or the rank computes.

#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "comm/observing_communicator.hpp"

namespace plimsoll::testing
{

class LatencyCommunicator final : public ObservingCommunicator
{
  public:
    LatencyCommunicator(std::unique_ptr<Communicator> inner, std::chrono::milliseconds latency)
        : ObservingCommunicator(std::move(inner)), latency_(latency)
    {
    }

  private:
    using Clock = std::chrono::steady_clock;

    class LateOperation final : public Work::Operation
    {
      public:
        LateOperation(Work work, Clock::time_point end) : work_(std::move(work)), end_(end) {}
        void finish() override
        {
            work_.synchronize();
            std::this_thread::sleep_until(end_);
        }
        void abandon() noexcept override { const Work dropped = std::move(work_); }

      private:
        Work work_;
        Clock::time_point end_;
    };

    Work observe(CollectiveKind, std::int64_t, const std::function<Work()>& start) override
    {
        const Clock::time_point end = Clock::now() + latency_;
        return Work(std::make_shared<LateOperation>(start(), end));
    }

    std::chrono::milliseconds latency_;
};

}  // namespace plimsoll::testing
