#include "engine/recording_communicator.hpp"

#include <utility>

#include "engine/recorder.hpp"

namespace plimsoll
{
namespace
{

class RecordedOperation final : public Work::Operation
{
  public:
    RecordedOperation(Work work, StepRecorder& recorder, std::int64_t id)
        : work_(std::move(work)), recorder_(recorder), id_(id)
    {
    }

    void finish() override
    {
        work_.synchronize();
        recorder_.waited(id_);
    }

    void abandon() noexcept override { Work dropped = std::move(work_); }

  private:
    Work work_;
    StepRecorder& recorder_;
    std::int64_t id_;
};

class RecordingCommunicator final : public Communicator
{
  public:
    RecordingCommunicator(std::unique_ptr<Communicator> inner, GroupKind group) : inner_(std::move(inner)), group_(group) {}

    std::string name() const override { return inner_->name(); }
    std::int64_t rank() const override { return inner_->rank(); }
    std::int64_t size() const override { return inner_->size(); }

    Work all_reduce(BufferView data, ReduceOp op, Stream& stream) override
    {
        return note(CollectiveKind::all_reduce, data, [&] { return inner_->all_reduce(data, op, stream); });
    }
    Work reduce_scatter(BufferView input, BufferView output, Stream& stream) override
    {
        return note(CollectiveKind::reduce_scatter, input, [&] { return inner_->reduce_scatter(input, output, stream); });
    }
    Work all_gather(BufferView input, BufferView output, Stream& stream) override
    {
        return note(CollectiveKind::all_gather, output, [&] { return inner_->all_gather(input, output, stream); });
    }
    Work send(BufferView data, std::int64_t peer, Stream& stream) override
    {
        return note(CollectiveKind::send, data, [&] { return inner_->send(data, peer, stream); });
    }
    Work recv(BufferView data, std::int64_t peer, Stream& stream) override
    {
        return note(CollectiveKind::recv, data, [&] { return inner_->recv(data, peer, stream); });
    }
    // No part of a step.
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
    template<class Start>
    Work note(CollectiveKind kind, const BufferView& view, const Start& start)
    {
        StepRecorder* recorder = thread_recorder();
        if (recorder == nullptr) { return start(); }
        const std::int64_t id = recorder->started(kind, group_, view.bytes());
        return Work(std::make_shared<RecordedOperation>(start(), *recorder, id));
    }

    std::unique_ptr<Communicator> inner_;
    GroupKind group_;
};

void wrap(std::unique_ptr<Communicator>& communicator, GroupKind group)
{
    if (communicator->size() > 1)
    {
        communicator = std::make_unique<RecordingCommunicator>(std::move(communicator), group);
    }
}

}  // namespace

void record_collectives(RankGroups& groups)
{
    wrap(groups.world, GroupKind::world);
    wrap(groups.dp, GroupKind::dp);
    wrap(groups.replicas, GroupKind::replicas);
    wrap(groups.tp, GroupKind::tp);
    wrap(groups.pp, GroupKind::pp);
    wrap(groups.kv, GroupKind::kv);
    wrap(groups.embedding, GroupKind::embedding);
}

}  // namespace plimsoll
