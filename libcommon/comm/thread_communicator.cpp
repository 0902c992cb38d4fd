#include "comm/thread_communicator.hpp"

#include <algorithm>
#include <thread>

#include "base/error.hpp"
#include "comm/rank_sum.hpp"
#include "comm/thread_operations.hpp"

namespace plimsoll
{
namespace threads
{

namespace
{

class ThreadCommunicator final : public Communicator
{
  public:
    ThreadCommunicator(std::shared_ptr<ThreadRank> rank, std::shared_ptr<Group> group, std::int64_t own)
        : rank_(std::move(rank)), group_(std::move(group)), own_(own),
          watchdog_(std::make_shared<Watchdog>(rank_->world().board, group_->name, group_->members, rank_->rank(),
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
        return issue(post_send(message_of(own_, peer, index), data, *rank_, world_rank(peer)), peer, index + 1);
    }

    Work recv(BufferView data, std::int64_t peer, Stream&) override
    {
        check(data);
        rank_->enter();
        const std::int64_t index = num_received_[check_peer(peer)]++;
        return issue(post_receive(message_of(peer, own_, index), data, *rank_, world_rank(peer)), peer, index + 1);
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
            members.push_back(world_rank(member));
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
                 rank_->rank(), name, group->name);
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
        return issue(post_collective(group_, own_, *rank_, std::move(collective), call), -1, sequence);
    }

    Work issue(std::shared_ptr<Operation> operation, std::int64_t number, std::int64_t sequence)
    {
        operation->number = number;
        operation->sequence = sequence;
        operation->watchdog = watchdog_;
        rank_->issue(operation);
        return Work(std::move(operation));
    }

    std::int64_t world_rank(std::int64_t member) const { return group_->members[static_cast<std::size_t>(member)]; }

    std::shared_ptr<ThreadRank> rank_;
    std::shared_ptr<Group> group_;
    std::int64_t own_;
    std::shared_ptr<Watchdog> watchdog_;
    std::int64_t num_collectives_ = 0;
    std::vector<std::int64_t> num_sent_;
    std::vector<std::int64_t> num_received_;
};

}  // namespace

std::unique_ptr<Communicator> make_world_communicator(const std::shared_ptr<ThreadRank>& rank, std::shared_ptr<Group> group)
{
    return std::make_unique<ThreadCommunicator>(rank, std::move(group), rank->rank());
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

void run_rank(const std::shared_ptr<threads::ThreadRank>& rank, const std::shared_ptr<threads::Group>& group,
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
        rank->world().fail(rank->rank(), std::current_exception(),
                           fmt::format("rank {} ({})", rank->rank(), describe(activity.record())));
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
            { run_rank(std::make_shared<threads::ThreadRank>(world, number), group, body, options.status_directory); });
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
