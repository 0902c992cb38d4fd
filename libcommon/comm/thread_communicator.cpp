#include "comm/thread_communicator.hpp"

#include <algorithm>
#include <cstring>
#include <thread>

#include "base/error.hpp"
#include "comm/rank_sum.hpp"
#include "comm/thread_world.hpp"

namespace plimsoll
{
namespace threads
{

namespace
{

constexpr std::int64_t chunk_bytes = 128 * 1024;

enum class Kind
{
    all_reduce,
    reduce_scatter,
    all_gather,
    broadcast,
    barrier
};

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

/// What a member asks for. `count` is that of the smaller of the two buffers.
struct Call
{
    Kind kind = Kind::barrier;
    ReduceOp op = ReduceOp::sum;
    Dtype dtype = Dtype::f32;
    std::int64_t count = 0;
    std::int64_t root = 0;
    const char* input = nullptr;
    char* output = nullptr;

    bool agrees_with(const Call& other) const
    {
        return kind == other.kind && op == other.op && dtype == other.dtype && count == other.count && root == other.root;
    }
    std::string text() const
    {
        std::string text = fmt::format("{} of {} {}", threads::name_of(kind), count, dtype_name(dtype));
        if (kind == Kind::all_reduce) { text += op == ReduceOp::sum ? " (sum)" : " (max)"; }
        if (kind == Kind::broadcast) { text += fmt::format(" from {}", root); }
        return text;
    }
};

struct Post
{
    Call call;
    SharedBuffer buffer;
    std::atomic<bool> is_there{false};
};

}  // namespace

/// One collective of all members.
struct Collective
{
    explicit Collective(std::int64_t size) : posts(static_cast<std::size_t>(size)) {}

    std::vector<Post> posts;
    std::atomic<std::int64_t> num_posted{0};
    std::atomic<std::int64_t> num_reduced{0};   ///< members that have summed their part
    std::atomic<std::int64_t> num_finished{0};  ///< members that need no other's buffer any more
};

/// One message.
struct Message
{
    const char* data = nullptr;
    std::int64_t count = 0;
    Dtype dtype = Dtype::f32;
    SharedBuffer buffer;
    std::atomic<bool> is_there{false};
    std::atomic<bool> is_received{false};
};

/// (from, to, which of this pair's messages), in group ranks.
using MessageKey = std::pair<std::pair<std::int64_t, std::int64_t>, std::int64_t>;

struct Group
{
    std::int64_t id = 0;
    std::string name;
    std::vector<std::int64_t> members;  ///< world ranks
    Meeting<std::int64_t, Collective> collectives;
    Meeting<MessageKey, Message> messages;
};

namespace
{

class CollectiveOperation final : public Operation
{
  public:
    CollectiveOperation(std::shared_ptr<Group> group, std::int64_t own, std::shared_ptr<Collective> collective)
        : group_(std::move(group)), collective_(std::move(collective)), own_(own),
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
            if (member != rank_number()) { world().bells[static_cast<std::size_t>(member)]->ring(); }
        }
    }

    std::int64_t rank_number() const { return group_->members[static_cast<std::size_t>(own_)]; }
    World& world() { return rank->world(); }

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
    ReceiveOperation(std::shared_ptr<Message> message, BufferView data, std::int64_t sender, std::string sender_text)
        : message_(std::move(message)), data_(data), sender_(sender), sender_text_(std::move(sender_text))
    {
    }

    bool advance() override
    {
        if (!message_->is_there.load(std::memory_order_acquire)) { return false; }
        if (message_->count != data_.count || message_->dtype != data_.dtype)
        {
            throw CommError(fmt::format("message #{} of '{}' has {} {} from {}, but {} {} are expected", sequence,
                                        watchdog->group(), message_->count, dtype_name(message_->dtype), sender_text_,
                                        data_.count, dtype_name(data_.dtype)));
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
            rank->world().bells[static_cast<std::size_t>(sender_)]->ring();
        }
        return true;
    }
    void withdraw() noexcept override {}

  private:
    std::shared_ptr<Message> message_;
    BufferView data_;
    std::int64_t sender_;
    std::string sender_text_;
    std::int64_t position_ = 0;
};

class ThreadCommunicator final : public Communicator
{
  public:
    ThreadCommunicator(std::shared_ptr<Rank> rank, std::shared_ptr<Group> group, std::int64_t own)
        : rank_(std::move(rank)), group_(std::move(group)), own_(own),
          watchdog_(std::make_shared<Watchdog>(rank_->world().board, group_->name, group_->members, rank_->number(),
                                               rank_->world().watchdog_s)),
          num_sent_(group_->members.size(), 0), num_received_(group_->members.size(), 0)
    {
    }

    std::string name() const override { return group_->name; }
    std::int64_t rank() const override { return own_; }
    std::int64_t size() const override { return static_cast<std::int64_t>(group_->members.size()); }

    Work all_reduce(BufferView data, ReduceOp op, Stream&) override
    {
        check(data);
        EXPECT(can_reduce(data.dtype));
        Call call = call_of(Kind::all_reduce, data, data);
        call.op = op;
        return start(call);
    }

    Work reduce_scatter(BufferView input, BufferView output, Stream&) override
    {
        check(input);
        check(output);
        EXPECT(can_reduce(input.dtype) && input.dtype == output.dtype && input.count == output.count * size());
        return start(call_of(Kind::reduce_scatter, input, output));
    }

    Work all_gather(BufferView input, BufferView output, Stream&) override
    {
        check(input);
        check(output);
        EXPECT(input.dtype == output.dtype && output.count == input.count * size());
        return start(call_of(Kind::all_gather, input, output));
    }

    Work broadcast(BufferView data, std::int64_t root, Stream&) override
    {
        check(data);
        EXPECT(root >= 0 && root < size());
        Call call = call_of(Kind::broadcast, data, data);
        call.root = root;
        return start(call);
    }

    void barrier() override { start(Call()).synchronize(); }

    Work send(BufferView data, std::int64_t peer, Stream&) override
    {
        check(data);
        rank_->enter();
        const std::int64_t index = num_sent_[check_peer(peer)]++;
        std::shared_ptr<Message> message = message_of(own_, peer, index);
        message->data = static_cast<const char*>(data.data);
        message->count = data.count;
        message->dtype = data.dtype;
        message->is_there.store(true, std::memory_order_release);
        rank_->world().bells[static_cast<std::size_t>(group_->members[static_cast<std::size_t>(peer)])]->ring();
        return issue(std::make_shared<SendOperation>(std::move(message)), "send to", peer, index + 1);
    }

    Work recv(BufferView data, std::int64_t peer, Stream&) override
    {
        check(data);
        rank_->enter();
        const std::int64_t index = num_received_[check_peer(peer)]++;
        const std::int64_t sender = group_->members[static_cast<std::size_t>(peer)];
        return issue(std::make_shared<ReceiveOperation>(message_of(peer, own_, index), data, sender,
                                                        fmt::format("rank {}", sender)),
                     "recv from", peer, index + 1);
    }

    std::unique_ptr<Communicator> subgroup(std::string name, const std::vector<std::int64_t>& ranks) override
    {
        rank_->enter();
        std::vector<std::int64_t> members;
        std::int64_t own = -1;
        for (const std::int64_t member : ranks)
        {
            EXPECT(member >= 0 && member < size());
            if (member == own_) { own = static_cast<std::int64_t>(members.size()); }
            members.push_back(group_->members[static_cast<std::size_t>(member)]);
        }
        EXPECT(own >= 0);
        GroupKey key;
        key.first = std::make_pair(group_->id, rank_->next_group_ordinal(group_->id, members));
        key.second = members;
        World& world = rank_->world();
        std::shared_ptr<Group> group = world.groups.join(key, static_cast<std::int64_t>(members.size()),
                                                         [&]
                                                         {
                                                             auto made = std::make_shared<Group>();
                                                             made->id = world.next_group_id++;
                                                             made->name = name;
                                                             made->members = members;
                                                             return made;
                                                         });
        VALIDATE(group->name == name, CommError, "ranks disagree about a group: rank {} calls it '{}', another '{}'",
                 rank_->number(), name, group->name);
        return std::make_unique<ThreadCommunicator>(rank_, std::move(group), own);
    }

    void progress() override { rank_->progress(); }
    RankActivity& activity() override { return rank_->activity(); }

  private:
    static void check(const BufferView& view)
    {
        EXPECT(view.count >= 0 && view.device.kind == DeviceKind::cpu);
        EXPECT(view.count == 0 || view.data != nullptr);
    }

    std::size_t check_peer(std::int64_t peer) const
    {
        EXPECT(peer >= 0 && peer < size() && peer != own_);
        return static_cast<std::size_t>(peer);
    }

    static Call call_of(Kind kind, const BufferView& input, const BufferView& output)
    {
        Call call;
        call.kind = kind;
        call.dtype = input.dtype;
        call.count = std::min(input.count, output.count);
        call.input = static_cast<const char*>(input.data);
        call.output = static_cast<char*>(output.data);
        return call;
    }

    std::shared_ptr<Message> message_of(std::int64_t from, std::int64_t to, std::int64_t index)
    {
        const MessageKey key = std::make_pair(std::make_pair(from, to), index);
        return group_->messages.join(key, 2, [] { return std::make_shared<Message>(); });
    }

    Work start(const Call& call)
    {
        rank_->enter();
        const std::int64_t sequence = ++num_collectives_;
        auto collective =
            group_->collectives.join(sequence, size(), [&] { return std::make_shared<Collective>(size()); });
        auto operation = std::make_shared<CollectiveOperation>(group_, own_, std::move(collective));
        operation->rank = rank_;
        operation->post(call);
        return issue(std::move(operation), threads::name_of(call.kind), -1, sequence);
    }

    Work issue(std::shared_ptr<Operation> operation, const char* name, std::int64_t number, std::int64_t sequence)
    {
        operation->name = name;
        operation->number = number;
        operation->sequence = sequence;
        operation->watchdog = watchdog_;
        rank_->issue(operation);
        return Work(std::move(operation));
    }

    std::shared_ptr<Rank> rank_;
    std::shared_ptr<Group> group_;
    std::int64_t own_;
    std::shared_ptr<Watchdog> watchdog_;
    std::int64_t num_collectives_ = 0;
    std::vector<std::int64_t> num_sent_;
    std::vector<std::int64_t> num_received_;
};

}  // namespace

std::unique_ptr<Communicator> make_world_communicator(const std::shared_ptr<Rank>& rank, std::shared_ptr<Group> group)
{
    return std::make_unique<ThreadCommunicator>(rank, std::move(group), rank->number());
}

std::shared_ptr<Group> make_world_group(std::int64_t size)
{
    auto group = std::make_shared<Group>();
    group->name = "world";
    for (std::int64_t rank = 0; rank < size; ++rank) { group->members.push_back(rank); }
    return group;
}

}  // namespace threads

namespace
{

void run_rank(const std::shared_ptr<threads::Rank>& rank, const std::shared_ptr<threads::Group>& group,
              const std::function<void(Communicator& world)>& body, const std::string& status_directory)
{
    RankActivity& activity = rank->activity();
    try
    {
        if (!status_directory.empty()) { activity.write_to(status_directory); }
        const std::unique_ptr<Communicator> world = threads::make_world_communicator(rank, group);
        body(*world);
        rank->check_forgotten();
        activity.set_state(RankState::done);
    }
    catch (...)
    {
        activity.set_state(RankState::failed);
        rank->world().fail(rank->number(), std::current_exception(),
                           fmt::format("rank {} ({})", rank->number(), describe(activity.record())));
    }
    rank->withdraw_all();
    rank->world().ring_all();
}

}  // namespace

void run_ranks(std::int64_t n, const std::function<void(Communicator& world)>& body, const RankOptions& options)
{
    EXPECT(n >= 1);
    const std::shared_ptr<RankBoard> board = options.board ? options.board : RankBoard::in_memory(n);
    EXPECT(board->size() >= n);
    const auto world = std::make_shared<threads::World>(n, board, options.watchdog_s);
    const std::shared_ptr<threads::Group> group = threads::make_world_group(n);
    std::vector<std::thread> ranks;
    for (std::int64_t number = 0; number < n; ++number)
    {
        ranks.emplace_back(
            [&, number]
            { run_rank(std::make_shared<threads::Rank>(world, number), group, body, options.status_directory); });
    }
    for (std::thread& rank : ranks) { rank.join(); }
    if (!world->failure) { return; }
    try
    {
        std::rethrow_exception(world->failure);
    }
    catch (Error& error)
    {
        error.add_context(world->failure_context);
        throw;
    }
}

}  // namespace plimsoll
