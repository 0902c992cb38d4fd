#pragma once
/// Collectives over a group of ranks. A one-rank communicator is a real object: code has no special case for it.
///
/// Every floating-point sum is taken in group-rank order, so its bits depend on nothing but the inputs. Threads: one
/// communicator belongs to one control thread; background threads never communicate. Buffers of a call must stay alive and
/// untouched until its Work was waited for.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "mem/buffer_view.hpp"
#include "mem/device.hpp"

namespace plimsoll
{

enum class ReduceOp { sum, max };

/// An operation under way.
class Work
{
  public:
    Work() = default; ///< already complete
    explicit Work(std::function<void()> finish) : finish_(std::move(finish)) {}
    /// Later work on `stream` is ordered after the operation.
    void wait(Stream& stream)
    {
        (void)stream;
        synchronize();
    }
    /// Blocks the host until the operation is complete.
    void synchronize()
    {
        if (finish_)
        {
            auto finish = std::move(finish_);
            finish_ = nullptr;
            finish();
        }
    }

  private:
    std::function<void()> finish_;
};

class Communicator
{
  public:
    virtual ~Communicator() = default;
    virtual std::string name() const = 0;
    virtual std::int64_t rank() const = 0;
    virtual std::int64_t size() const = 0;

    /// In place; every rank ends with the reduction. @pre f32, f64 or i64
    virtual Work all_reduce(BufferView data, ReduceOp op, Stream& stream) = 0;
    /// `input` holds size() equal parts; rank r receives the sum of all ranks' part r in `output`. May alias part r.
    virtual Work reduce_scatter(BufferView input, BufferView output, Stream& stream) = 0;
    /// Rank r contributes `input`; `output` holds size() parts in rank order. `input` may alias part rank().
    virtual Work all_gather(BufferView input, BufferView output, Stream& stream) = 0;
    virtual Work broadcast(BufferView data, std::int64_t root, Stream& stream) = 0;
    virtual void barrier() = 0;
    /// To and from one other member. Messages between two members arrive in the order sent. A send completes at the latest
    /// when the peer has received; until then its buffer belongs to it.
    virtual Work send(BufferView data, std::int64_t peer, Stream& stream) = 0;
    virtual Work recv(BufferView data, std::int64_t peer, Stream& stream) = 0;
    /// A communicator of these members (ranks of this one, in the order that becomes the new group's). Every member of the
    /// new group calls it, with the same list and in the same order; others need not. @pre rank() is one of `ranks`
    virtual std::unique_ptr<Communicator> subgroup(std::string name, const std::vector<std::int64_t>& ranks) = 0;
    /// Moves operations under way forward without waiting for any (at most about 50 us).
    virtual void progress() {}
};

/// The communicator of a group with one member.
std::unique_ptr<Communicator> make_self_communicator(std::string name);

}  // namespace plimsoll
