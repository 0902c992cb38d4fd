#include "comm/metered_communicator.hpp"

#include <utility>

#include "comm/observing_communicator.hpp"
#include "comm/operation_queue.hpp"

namespace plimsoll
{
namespace
{

class MeteredOperation final : public Work::Operation
{
  public:
    MeteredOperation(Work work, CommunicationMeter& meter) : work_(std::move(work)), meter_(meter) {}

    void finish() override
    {
        const double begin = steady_now_seconds();
        work_.synchronize();
        meter_.waited_seconds += steady_now_seconds() - begin;
    }

    void abandon() noexcept override { const Work dropped = std::move(work_); }

  private:
    Work work_;
    CommunicationMeter& meter_;
};

class MeteredCommunicator final : public ObservingCommunicator
{
  public:
    MeteredCommunicator(std::unique_ptr<Communicator> inner, CommunicationMeter& meter)
        : ObservingCommunicator(std::move(inner)), meter_(meter)
    {
    }

  private:
    Work observe(CollectiveKind kind, std::int64_t bytes, const std::function<Work()>& start) override
    {
        ++meter_.calls;
        meter_.bytes += sent_bytes(kind, bytes, size());
        return Work(std::make_shared<MeteredOperation>(start(), meter_));
    }

    CommunicationMeter& meter_;
};

}  // namespace

std::unique_ptr<Communicator> make_metered_communicator(std::unique_ptr<Communicator> inner, CommunicationMeter& meter)
{
    return std::make_unique<MeteredCommunicator>(std::move(inner), meter);
}

CommunicationMeters::CommunicationMeters(RankGroups& groups)
{
    for (auto* group : {&groups.world, &groups.dp, &groups.replicas, &groups.tp, &groups.pp, &groups.kv, &groups.embedding})
    {
        if ((*group)->size() == 1) { continue; }
        const std::string name = (*group)->name();
        *group = make_metered_communicator(std::move(*group), meters_[name]);
    }
}

std::map<std::string, CommunicationMeter> CommunicationMeters::take()
{
    std::map<std::string, CommunicationMeter> taken = meters_;
    for (auto& [name, meter] : meters_) { meter = CommunicationMeter(); }
    return taken;
}

}  // namespace plimsoll
