#include "comm/thread_operations.hpp"

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "comm/rank_sum.hpp"

namespace plimsoll::threads
{

namespace
{

constexpr std::int64_t chunk_bytes = 128 * 1024;

class CollectiveOperation final : public Operation
{
  public:
    CollectiveOperation(std::shared_ptr<Group> group, std::int64_t own, World& world,
                        std::shared_ptr<Collective> collective)
        : group_(std::move(group)), collective_(std::move(collective)), world_(world), own_(own),
          size_(static_cast<std::int64_t>(group_->members.size()))
    {
    }

    void post(const Call& call)
    {
        Post& mine = post_of(own_);
        mine.call = call;
        mine.is_there.store(true, std::memory_order_release);
        count_up(collective_->num_posted);
    }

    bool advance() override
    {
        const std::int64_t before = position_;
        const Stage stage = stage_;
        switch (stage_)
        {
            case Stage::gather: start(); break;
            case Stage::reduce: reduce(); break;
            case Stage::wait_reduced:
                if (all(collective_->num_reduced)) { next(Stage::copy); }
                break;
            case Stage::copy: copy(); break;
            case Stage::wait_finished:
                if (all(collective_->num_finished)) { complete(); }
                break;
        }
        return stage_ != stage || position_ != before || is_done;
    }

    void withdraw() noexcept override { post_of(own_).buffer.withdraw(); }

  private:
    enum class Stage
    {
        gather,
        reduce,
        wait_reduced,
        copy,
        wait_finished
    };

    Post& post_of(std::int64_t member) { return collective_->posts[static_cast<std::size_t>(member)]; }
    const Call& call() { return post_of(own_).call; }
    bool all(const std::atomic<std::int64_t>& counter) const { return counter.load(std::memory_order_acquire) == size_; }

    /// Only a counter that became complete is news to the others.
    void count_up(std::atomic<std::int64_t>& counter)
    {
        if (counter.fetch_add(1, std::memory_order_acq_rel) + 1 == size_ || call().kind == Kind::broadcast) { ring(); }
    }

    void ring()
    {
        for (const std::int64_t member : group_->members)
        {
            if (member != rank_number()) { world_.bells[static_cast<std::size_t>(member)]->ring(); }
        }
    }

    std::int64_t rank_number() const { return group_->members[static_cast<std::size_t>(own_)]; }

    void next(Stage stage)
    {
        stage_ = stage;
        member_ = 0;
        position_ = 0;
    }

    void complete()
    {
        is_done = true;
        // Nobody reads it any more; this only keeps a late failure from waiting for a buffer that is gone.
        post_of(own_).buffer.withdraw();
    }

    void start()
    {
        if (call().kind == Kind::broadcast)
        {
            if (!post_of(call().root).is_there.load(std::memory_order_acquire)) { return; }
            check_agreement(call().root);
        }
        else
        {
            if (!all(collective_->num_posted)) { return; }
            for (std::int64_t member = 0; member < size_; ++member) { check_agreement(member); }
        }
        switch (call().kind)
        {
            case Kind::all_reduce:
            case Kind::reduce_scatter: next(Stage::reduce); break;
            case Kind::all_gather:
            case Kind::broadcast: next(Stage::copy); break;
            case Kind::barrier: complete(); break;
        }
    }

    void check_agreement(std::int64_t member)
    {
        const Call& other = post_of(member).call;
        if (other.agrees_with(call())) { return; }
        throw CommError(fmt::format("ranks disagree about operation #{} of '{}': rank {} calls {}, rank {} {}", sequence,
                                    group_->name, rank_number(), call().text(),
                                    group_->members[static_cast<std::size_t>(member)], other.text()));
    }

    /// The elements that this member sums, counted in its input.
    Part own_part()
    {
        if (call().kind == Kind::all_reduce) { return part_of(call().count, size_, own_); }
        Part part;
        part.first = call().count * own_;
        part.count = call().count;
        return part;
    }

    bool pin_all()
    {
        for (std::int64_t member = 0; member < size_; ++member)
        {
            if (post_of(member).buffer.pin()) { continue; }
            for (std::int64_t pinned = 0; pinned < member; ++pinned) { post_of(pinned).buffer.unpin(); }
            return false;
        }
        return true;
    }

    /// A chunk of the own part: read from all, written where only this member looks before the next stage.
    void reduce()
    {
        const Part part = own_part();
        const std::int64_t width = dtype_bytes(call().dtype);
        const std::int64_t num = std::min(part.count - position_, chunk_bytes / width);
        if (num > 0)
        {
            if (!pin_all()) { return; }
            const std::int64_t at = part.first + position_;
            inputs_.clear();
            for (std::int64_t member = 0; member < size_; ++member)
            {
                inputs_.push_back(post_of(member).call.input + at * width);
            }
            const std::int64_t to = call().kind == Kind::all_reduce ? at : position_;
            reduce_ranks(call().dtype, call().op, call().output + to * width, inputs_.data(), size_, num);
            for (std::int64_t member = 0; member < size_; ++member) { post_of(member).buffer.unpin(); }
            position_ += num;
        }
        if (position_ < part.count) { return; }
        const bool all_reduce = call().kind == Kind::all_reduce;
        next(all_reduce ? Stage::wait_reduced : Stage::wait_finished);
        count_up(all_reduce ? collective_->num_reduced : collective_->num_finished);
    }

    /// What comes from a member: where it begins in that member's buffer and in the own output, and how much.
    struct Copy
    {
        std::int64_t from = 0;
        std::int64_t to = 0;
        std::int64_t count = 0;
    };

    Copy copy_from(std::int64_t member)
    {
        Copy copy;
        copy.count = call().count;
        switch (call().kind)
        {
            case Kind::all_reduce:
            {
                const Part part = part_of(call().count, size_, member);
                copy.from = part.first;
                copy.to = part.first;
                copy.count = member == own_ ? 0 : part.count;
                break;
            }
            case Kind::all_gather:
                copy.to = call().count * member;
                if (post_of(member).call.input == call().output + copy.to * dtype_bytes(call().dtype)) { copy.count = 0; }
                break;
            default: copy.count = member == call().root && own_ != call().root ? call().count : 0; break;
        }
        return copy;
    }

    void copy()
    {
        const std::int64_t width = dtype_bytes(call().dtype);
        for (std::int64_t budget = chunk_bytes / width; member_ < size_; ++member_, position_ = 0)
        {
            const Copy from = copy_from(member_);
            const std::int64_t num = std::min(from.count - position_, budget);
            if (num > 0)
            {
                Post& other = post_of(member_);
                if (!other.buffer.pin()) { return; }
                std::memcpy(call().output + (from.to + position_) * width,
                            other.call.input + (from.from + position_) * width, static_cast<std::size_t>(num * width));
                other.buffer.unpin();
                position_ += num;
                budget -= num;
            }
            if (position_ < from.count) { return; }
        }
        // Only the root's buffer is read in a broadcast: who has the data may go.
        const bool may_go = call().kind == Kind::broadcast && own_ != call().root;
        next(Stage::wait_finished);
        count_up(collective_->num_finished);
        if (may_go) { complete(); }
    }

    std::shared_ptr<Group> group_;
    std::shared_ptr<Collective> collective_;
    World& world_;
    std::int64_t own_;
    std::int64_t size_;
    Stage stage_ = Stage::gather;
    std::int64_t member_ = 0;
    std::int64_t position_ = 0;
    std::vector<const void*> inputs_;
};

class SendOperation final : public Operation
{
  public:
    explicit SendOperation(std::shared_ptr<Message> message) : message_(std::move(message)) {}

    bool advance() override
    {
        is_done = message_->is_received.load(std::memory_order_acquire);
        return is_done;
    }
    void withdraw() noexcept override { message_->buffer.withdraw(); }

  private:
    std::shared_ptr<Message> message_;
};

class ReceiveOperation final : public Operation
{
  public:
    ReceiveOperation(std::shared_ptr<Message> message, BufferView data, World& world, std::int64_t sender)
        : message_(std::move(message)), data_(data), world_(world), sender_(sender)
    {
    }

    bool advance() override
    {
        if (!message_->is_there.load(std::memory_order_acquire)) { return false; }
        if (message_->count != data_.count || message_->dtype != data_.dtype)
        {
            throw CommError(fmt::format("message #{} of '{}' has {} {} from rank {}, but {} {} are expected",
                                        sequence, watchdog->group(), message_->count, dtype_name(message_->dtype),
                                        sender_, data_.count, dtype_name(data_.dtype)));
        }
        const std::int64_t num = std::min(data_.bytes() - position_, chunk_bytes);
        if (num > 0)
        {
            if (!message_->buffer.pin()) { return false; }
            std::memcpy(static_cast<char*>(data_.data) + position_, message_->data + position_,
                        static_cast<std::size_t>(num));
            message_->buffer.unpin();
            position_ += num;
        }
        if (position_ == data_.bytes())
        {
            is_done = true;
            message_->is_received.store(true, std::memory_order_release);
            world_.bells[static_cast<std::size_t>(sender_)]->ring();
        }
        return true;
    }
    void withdraw() noexcept override {}

  private:
    std::shared_ptr<Message> message_;
    BufferView data_;
    World& world_;
    std::int64_t sender_;
    std::int64_t position_ = 0;
};

}  // namespace

const char* name_of(Kind kind)
{
    switch (kind)
    {
        case Kind::all_reduce: return "all_reduce";
        case Kind::reduce_scatter: return "reduce_scatter";
        case Kind::all_gather: return "all_gather";
        case Kind::broadcast: return "broadcast";
        case Kind::barrier: return "barrier";
    }
    return "";
}

std::string Call::text() const
{
    std::string text = fmt::format("{} of {} {}", name_of(kind), count, dtype_name(dtype));
    if (kind == Kind::all_reduce) { text += op == ReduceOp::sum ? " (sum)" : " (max)"; }
    if (kind == Kind::broadcast) { text += fmt::format(" from {}", root); }
    return text;
}

std::shared_ptr<Operation> post_collective(std::shared_ptr<Group> group, std::int64_t own, ThreadRank& rank,
                                           std::shared_ptr<Collective> collective, const Call& call)
{
    auto operation = std::make_shared<CollectiveOperation>(std::move(group), own, rank.world(), std::move(collective));
    operation->name = name_of(call.kind);
    operation->post(call);
    return operation;
}

std::shared_ptr<Operation> post_send(std::shared_ptr<Message> message, const BufferView& data, ThreadRank& rank,
                                     std::int64_t receiver)
{
    message->data = static_cast<const char*>(data.data);
    message->count = data.count;
    message->dtype = data.dtype;
    message->is_there.store(true, std::memory_order_release);
    rank.world().bells[static_cast<std::size_t>(receiver)]->ring();
    auto operation = std::make_shared<SendOperation>(std::move(message));
    operation->name = "send to";
    return operation;
}

std::shared_ptr<Operation> post_receive(std::shared_ptr<Message> message, const BufferView& data, ThreadRank& rank,
                                        std::int64_t sender)
{
    auto operation = std::make_shared<ReceiveOperation>(std::move(message), data, rank.world(), sender);
    operation->name = "recv from";
    return operation;
}

}  // namespace plimsoll::threads
