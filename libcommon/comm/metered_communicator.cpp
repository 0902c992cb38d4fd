#include "comm/metered_communicator.hpp"

#include <chrono>
#include <utility>

#include "layout/collective_cost.hpp"

namespace plimsoll
{
namespace
{

double now_seconds()
{
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class MeteredOperation final : public Work::Operation
{
  public:
    MeteredOperation(Work work, CommunicationMeter& meter) : work_(std::move(work)), meter_(meter) {}

    void finish() override
    {
        const double begin = now_seconds();
        work_.synchronize();
        meter_.waited_seconds += now_seconds() - begin;
    }

    void abandon() noexcept override { const Work dropped = std::move(work_); }

  private:
    Work work_;
    CommunicationMeter& meter_;
};

class MeteredCommunicator final : public Communicator
{
  public:
    MeteredCommunicator(std::unique_ptr<Communicator> inner, CommunicationMeter& meter)
        : inner_(std::move(inner)), meter_(meter)
    {
    }

    std::string name() const override { return inner_->name(); }
    std::int64_t rank() const override { return inner_->rank(); }
    std::int64_t size() const override { return inner_->size(); }

    Work all_reduce(BufferView data, ReduceOp op, Stream& stream) override
    {
        return count(SentBy::all_reduce, data, inner_->all_reduce(data, op, stream));
    }
    Work reduce_scatter(BufferView input, BufferView output, Stream& stream) override
    {
        return count(SentBy::reduce_scatter, input, inner_->reduce_scatter(input, output, stream));
    }
    Work all_gather(BufferView input, BufferView output, Stream& stream) override
    {
        return count(SentBy::all_gather, output, inner_->all_gather(input, output, stream));
    }
    Work send(BufferView data, std::int64_t peer, Stream& stream) override
    {
        return count(SentBy::send, data, inner_->send(data, peer, stream));
    }
    Work recv(BufferView data, std::int64_t peer, Stream& stream) override
    {
        return count(SentBy::recv, data, inner_->recv(data, peer, stream));
    }
    Work broadcast(BufferView data, std::int64_t root, Stream& stream) override { return inner_->broadcast(data, root, stream); }
    void barrier() override { inner_->barrier(); }
    std::unique_ptr<Communicator> subgroup(std::string name, const std::vector<std::int64_t>& ranks) override
    {
        return inner_->subgroup(std::move(name), ranks);
    }
    void progress() override { inner_->progress(); }
    RankActivity& activity() override { return inner_->activity(); }
    std::int64_t scratch_bytes() const override { return inner_->scratch_bytes(); }

  private:
    Work count(SentBy kind, const BufferView& view, Work work)
    {
        ++meter_.calls;
        meter_.bytes += sent_bytes(kind, view.bytes(), size());
        return Work(std::make_shared<MeteredOperation>(std::move(work), meter_));
    }

    std::unique_ptr<Communicator> inner_;
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
