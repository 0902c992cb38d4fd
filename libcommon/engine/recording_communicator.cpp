#include "engine/recording_communicator.hpp"

#include <utility>

#include "comm/observing_communicator.hpp"
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

class RecordingCommunicator final : public ObservingCommunicator
{
  public:
    RecordingCommunicator(std::unique_ptr<Communicator> inner, GroupKind group)
        : ObservingCommunicator(std::move(inner)), group_(group)
    {
    }

  private:
    Work observe(CollectiveKind kind, std::int64_t bytes, const std::function<Work()>& start) override
    {
        StepRecorder* recorder = thread_recorder();
        if (recorder == nullptr) { return start(); }
        const std::int64_t id = recorder->started(kind, group_, bytes);
        return Work(std::make_shared<RecordedOperation>(start(), *recorder, id));
    }

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
