#include "comm/communicator.hpp"

#include "comm/rank_activity.hpp"

namespace plimsoll
{

namespace
{

/// A function that finishes; one that never runs leaves nothing behind.
class FunctionOperation final : public Work::Operation
{
  public:
    explicit FunctionOperation(std::function<void()> finish) : finish_(std::move(finish)) {}
    void finish() override { finish_(); }
    void abandon() noexcept override {}

  private:
    std::function<void()> finish_;
};

}  // namespace

Work::Work(std::function<void()> finish)
{
    if (finish) { operation_ = std::make_shared<FunctionOperation>(std::move(finish)); }
}

RankActivity& Communicator::activity()
{
    if (!own_activity_) { own_activity_ = RankBoard::in_memory(1)->activity(0); }
    return *own_activity_;
}

}  // namespace plimsoll
