#pragma once
/// A communicator that passes everything on and lets a derived class look at what belongs to a training step: all-reduce,
/// reduce-scatter, all-gather, send and receive. Broadcasts and barriers are no part of one.

#include <functional>
#include <memory>
#include <utility>

#include "comm/communicator.hpp"
#include "layout/collective_cost.hpp"

namespace plimsoll
{

class ObservingCommunicator : public Communicator
{
  public:
    explicit ObservingCommunicator(std::unique_ptr<Communicator> inner) : inner_(std::move(inner)) {}

    std::string name() const override { return inner_->name(); }
    std::int64_t rank() const override { return inner_->rank(); }
    std::int64_t size() const override { return inner_->size(); }

    Work all_reduce(BufferView data, ReduceOp op, Stream& stream) override
    {
        return observe(CollectiveKind::all_reduce, data.bytes(), [&] { return inner_->all_reduce(data, op, stream); });
    }
    Work reduce_scatter(BufferView input, BufferView output, Stream& stream) override
    {
        return observe(CollectiveKind::reduce_scatter, input.bytes(),
                       [&] { return inner_->reduce_scatter(input, output, stream); });
    }
    Work all_gather(BufferView input, BufferView output, Stream& stream) override
    {
        return observe(CollectiveKind::all_gather, output.bytes(), [&] { return inner_->all_gather(input, output, stream); });
    }
    Work send(BufferView data, std::int64_t peer, Stream& stream) override
    {
        return observe(CollectiveKind::send, data.bytes(), [&] { return inner_->send(data, peer, stream); });
    }
    Work recv(BufferView data, std::int64_t peer, Stream& stream) override
    {
        return observe(CollectiveKind::recv, data.bytes(), [&] { return inner_->recv(data, peer, stream); });
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

  protected:
    /// Calls `start` once and returns its work, or one around it. `bytes`: of the larger buffer.
    virtual Work observe(CollectiveKind kind, std::int64_t bytes, const std::function<Work()>& start) = 0;

  private:
    std::unique_ptr<Communicator> inner_;
};

}  // namespace plimsoll
