#include <cstring>

#include "base/error.hpp"
#include "comm/communicator.hpp"
#include "comm/rank_activity.hpp"

namespace plimsoll
{
namespace
{

/// One member: every collective is the identity, and is held to the same preconditions as with many.
class SelfCommunicator final : public Communicator
{
  public:
    SelfCommunicator(std::string name, std::shared_ptr<RankActivity> activity)
        : name_(std::move(name)), activity_(std::move(activity))
    {
    }

    std::string name() const override { return name_; }
    std::int64_t rank() const override { return 0; }
    std::int64_t size() const override { return 1; }

    Work all_reduce(BufferView data, ReduceOp, Stream&) override
    {
        EXPECT(data.count >= 0);
        return Work();
    }

    Work reduce_scatter(BufferView input, BufferView output, Stream&) override { return copy(input, output); }
    Work all_gather(BufferView input, BufferView output, Stream&) override { return copy(input, output); }

    Work broadcast(BufferView, std::int64_t root, Stream&) override
    {
        EXPECT(root == 0);
        return Work();
    }

    void barrier() override {}

    Work send(BufferView, std::int64_t, Stream&) override { throw InternalError("a group of one has no peer to send to"); }
    Work recv(BufferView, std::int64_t, Stream&) override { throw InternalError("a group of one has no peer to receive from"); }

    std::unique_ptr<Communicator> subgroup(std::string name, const std::vector<std::int64_t>& ranks) override
    {
        EXPECT(ranks.size() == 1 && ranks.front() == 0);
        return std::make_unique<SelfCommunicator>(std::move(name), activity_);
    }

    RankActivity& activity() override { return *activity_; }

  private:
    static Work copy(const BufferView& input, const BufferView& output)
    {
        EXPECT(input.count == output.count && input.dtype == output.dtype);
        EXPECT(input.device.kind == DeviceKind::cpu && output.device.kind == DeviceKind::cpu);
        if (input.data != output.data) { std::memmove(output.data, input.data, static_cast<std::size_t>(input.bytes())); }
        return Work();
    }

    std::string name_;
    std::shared_ptr<RankActivity> activity_;
};

}  // namespace

std::unique_ptr<Communicator> make_self_communicator(std::string name)
{
    return std::make_unique<SelfCommunicator>(std::move(name), RankBoard::in_memory(1)->activity(0));
}

}  // namespace plimsoll
