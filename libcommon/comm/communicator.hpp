#pragma once
/// Collectives over a group of ranks. A one-rank communicator is a real object: code has no special case for it.
///
/// Every floating-point sum is taken in group-rank order, so its bits depend on nothing but the inputs. Threads: one
/// communicator belongs to one control thread; background threads never communicate. Buffers of a call must stay alive and
/// untouched until its Work was waited for. Members of a group call the same operations with the same counts in the same
/// order; they may wait in any order. Every call and every wait throws CommError when another rank failed, died or hangs.

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "mem/buffer_view.hpp"
#include "mem/device.hpp"

namespace plimsoll
{

enum class ReduceOp { sum, max };

/// An operation under way. It is waited for exactly once: one that is destroyed before that is an error, which the next
/// call on a communicator of the rank throws, and `run_ranks` at the latest (an exception that passes by is excused). It must
/// be destroyed before the buffers of the operation are.
class Work
{
  public:
    /// What a back end does about it.
    class Operation
    {
      public:
        virtual ~Operation() = default;
        /// Blocks until complete; called at most once. @throws CommError
        virtual void finish() = 0;
        /// Nobody will wait: makes the buffers safe to destroy.
        virtual void abandon() noexcept = 0;
    };

    Work() = default;  ///< already complete
    explicit Work(std::shared_ptr<Operation> operation) : operation_(std::move(operation)) {}
    explicit Work(std::function<void()> finish);
    Work(Work&& other) noexcept : operation_(std::move(other.operation_)) { other.operation_ = nullptr; }
    Work& operator=(Work&& other) noexcept
    {
        std::swap(operation_, other.operation_);
        other.drop();
        return *this;
    }
    ~Work() { drop(); }

    /// Later work on `stream` is ordered after the operation.
    void wait(Stream& stream)
    {
        (void)stream;
        synchronize();
    }
    /// Blocks the host until the operation is complete. @throws CommError when it can no longer complete
    void synchronize()
    {
        if (operation_)
        {
            const std::shared_ptr<Operation> operation = std::move(operation_);
            operation_ = nullptr;
            operation->finish();
        }
    }

  private:
    void drop() noexcept
    {
        if (operation_) { operation_->abandon(); }
        operation_ = nullptr;
    }

    std::shared_ptr<Operation> operation_;
};

class RankActivity;

class Communicator
{
  public:
    virtual ~Communicator() = default;
    virtual std::string name() const = 0;
    virtual std::int64_t rank() const = 0;
    virtual std::int64_t size() const = 0;

    /// In place; every rank ends with the reduction. A maximum with a NaN is NaN. @pre f32, f64, bf16 (summed in fp32), i32, i64 or u8
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
    /// What this rank is doing, for the others to see: one object for all communicators of a rank.
    virtual RankActivity& activity();
    /// Bytes that this communicator allocated for itself; at most collective_scratch_bytes(size()).
    virtual std::int64_t scratch_bytes() const { return 0; }

  private:
    std::shared_ptr<RankActivity> own_activity_;
};

/// The communicator of a group with one member.
std::unique_ptr<Communicator> make_self_communicator(std::string name);

}  // namespace plimsoll
