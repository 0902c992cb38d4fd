#include "comm_mpi/mpi_communicator.hpp"

#ifdef PLIMSOLL_WITH_MPI

#include <algorithm>
#include <exception>

#include "base/error.hpp"
#include "comm/rank_sum.hpp"
#include "comm_mpi/message_operations.hpp"
#include "comm_mpi/shared_operations.hpp"
#include "layout/collective_cost.hpp"

namespace plimsoll::mpi
{
namespace
{

class MpiCommunicator final : public Communicator
{
  public:
    MpiCommunicator(std::shared_ptr<Engine> engine, MPI_Comm comm, std::string name, std::vector<std::int64_t> members)
        : name_(std::move(name)), members_(std::move(members))
    {
        place_.engine = std::move(engine);
        place_.comm = comm;
        check(MPI_Comm_rank(comm, &place_.rank), "MPI_Comm_rank");
        check(MPI_Comm_size(comm, &place_.size), "MPI_Comm_size");
        place_.scratch = std::make_shared<Scratch>(place_.size);
        EXPECT(static_cast<std::size_t>(place_.size) == members_.size());
        place_.watchdog = std::make_shared<Watchdog>(place_.engine->board(), name_, members_,
                                                     members_[static_cast<std::size_t>(place_.rank)],
                                                     place_.engine->watchdog_seconds());
        num_messages_.resize(2 * members_.size(), 0);
    }

    /// Collective, before anything else: memory that the members share, where all of them see it.
    void share_window()
    {
        const auto is_here = [this](std::int64_t member) { return place_.engine->board()->is_readable(member); };
        if (place_.engine->large_sums() != LargeSums::shared_memory ||
            !std::all_of(members_.begin(), members_.end(), is_here))
        {
            return;
        }
        auto window = std::make_shared<SharedWindow>(size(), rank());
        const SharedWindow::Offer mine = rank() == 0 ? window->make() : SharedWindow::Offer();
        const auto offers = gather(mine);
        const bool has_it = rank() == 0 ? mine.fd >= 0 : window->open(offers.front());
        if (!window->reason().empty())
        {
            place_.engine->warn_once(fmt::format("ranks of this node sum large buffers through messages, which takes about "
                                                 "twice as long ({}). let them see each other in /proc",
                                                 window->reason()));
        }
        const auto have_it = gather(has_it ? std::int64_t(1) : std::int64_t(0));
        if (std::all_of(have_it.begin(), have_it.end(), [](std::int64_t has) { return has == 1; })) { window_ = window; }
    }

    ~MpiCommunicator() override
    {
        // Collective: not while an error unwinds this rank alone.
        if (std::uncaught_exceptions() == 0) { MPI_Comm_free(&place_.comm); }
    }

    std::string name() const override { return name_; }
    std::int64_t rank() const override { return place_.rank; }
    std::int64_t size() const override { return place_.size; }

    Work all_reduce(BufferView data, ReduceOp op, Stream&) override
    {
        check_view(data);
        EXPECT(can_reduce(data.dtype));
        const std::int64_t sequence = begin();
        if (window_ && data.bytes() >= shared_least_bytes)
        {
            return start_shared(shared_all_reduce(window_, data, op), sequence);
        }
        return start(message_all_reduce(place_, sequence, data, op));
    }

    Work reduce_scatter(BufferView input, BufferView output, Stream&) override
    {
        check_view(input);
        check_view(output);
        EXPECT(can_reduce(input.dtype) && input.dtype == output.dtype && input.count == output.count * size());
        const std::int64_t sequence = begin();
        if (window_) { return start_shared(shared_reduce_scatter(window_, input, output), sequence); }
        return start(message_reduce_scatter(place_, sequence, input, output));
    }

    Work all_gather(BufferView input, BufferView output, Stream&) override
    {
        check_view(input);
        check_view(output);
        EXPECT(input.dtype == output.dtype && output.count == input.count * size());
        return start(message_all_gather(place_, begin(), input, output));
    }

    Work broadcast(BufferView data, std::int64_t root, Stream&) override
    {
        check_view(data);
        EXPECT(root >= 0 && root < size());
        return start(message_broadcast(place_, begin(), data, static_cast<int>(root)));
    }

    void barrier() override { start(message_barrier(place_, begin())).synchronize(); }

    Work send(BufferView data, std::int64_t peer, Stream&) override
    {
        const std::int64_t which = next_message(data, peer, 0);
        return start(message_send(place_, data, peer, which));
    }

    Work recv(BufferView data, std::int64_t peer, Stream&) override
    {
        const std::int64_t which = next_message(data, peer, 1);
        return start(message_recv(place_, data, peer, which));
    }

    std::unique_ptr<Communicator> subgroup(std::string name, const std::vector<std::int64_t>& ranks) override
    {
        place_.engine->enter();
        if (ranks.size() == 1)
        {
            EXPECT(ranks.front() == rank());
            return make_self_communicator(std::move(name));
        }
        std::vector<int> group_ranks;
        std::vector<std::int64_t> members;
        for (const std::int64_t member : ranks)
        {
            EXPECT(member >= 0 && member < size());
            group_ranks.push_back(static_cast<int>(member));
            members.push_back(members_[static_cast<std::size_t>(member)]);
        }
        const auto own = std::find(ranks.begin(), ranks.end(), rank());
        EXPECT(own != ranks.end());
        start(message_meeting(place_, group_ranks, static_cast<int>(own - ranks.begin()))).synchronize();
        MPI_Group mine = MPI_GROUP_NULL, wanted = MPI_GROUP_NULL;
        MPI_Comm comm = MPI_COMM_NULL;
        check(MPI_Comm_group(place_.comm, &mine), "MPI_Comm_group");
        check(MPI_Group_incl(mine, static_cast<int>(group_ranks.size()), group_ranks.data(), &wanted), "MPI_Group_incl");
        check(MPI_Comm_create_group(place_.comm, wanted, 0, &comm), "MPI_Comm_create_group");
        MPI_Group_free(&wanted);
        MPI_Group_free(&mine);
        return make_communicator(place_.engine, comm, std::move(name), std::move(members));
    }

    void progress() override { place_.engine->progress(); }
    RankActivity& activity() override { return place_.engine->activity(); }
    std::int64_t scratch_bytes() const override
    {
        return place_.scratch->bytes() + (window_ ? window_->reserved_bytes() : 0);
    }

  private:
    static void check_view(const BufferView& view)
    {
        EXPECT(view.count >= 0 && view.device.kind == DeviceKind::cpu);
        EXPECT(view.count == 0 || view.data != nullptr);
    }

    std::int64_t begin()
    {
        place_.engine->enter();
        return ++num_collectives_;
    }

    Work start(std::shared_ptr<Operation> operation)
    {
        place_.engine->issue(operation);
        return Work(std::move(operation));
    }

    Work start_shared(std::shared_ptr<Operation> operation, std::int64_t sequence)
    {
        operation->watchdog = place_.watchdog;
        operation->sequence = sequence;
        return start(std::move(operation));
    }

    /// What each member brings, in group order.
    template<class Value>
    std::vector<Value> gather(Value mine)
    {
        std::vector<Value> all(static_cast<std::size_t>(size()));
        BufferView input, output;
        input.dtype = output.dtype = Dtype::u8;
        input.data = &mine;
        input.count = sizeof(Value);
        output.data = all.data();
        output.count = input.count * size();
        start(message_all_gather(place_, 0, input, output)).synchronize();
        return all;
    }

    /// `way`: 0 of sends, 1 of receives
    std::int64_t next_message(const BufferView& data, std::int64_t peer, std::int64_t way)
    {
        check_view(data);
        EXPECT(peer >= 0 && peer < size() && peer != rank());
        place_.engine->enter();
        return ++num_messages_[static_cast<std::size_t>(2 * peer + way)];
    }

    std::string name_;
    std::vector<std::int64_t> members_;
    Place place_;
    std::shared_ptr<SharedWindow> window_;  ///< null: large sums go as messages
    std::int64_t num_collectives_ = 0;
    std::vector<std::int64_t> num_messages_; ///< sent to and received from each member
};

}  // namespace

std::unique_ptr<Communicator> make_communicator(std::shared_ptr<Engine> engine, MPI_Comm comm, std::string name,
                                                std::vector<std::int64_t> members)
{
    auto communicator = std::make_unique<MpiCommunicator>(std::move(engine), comm, std::move(name), std::move(members));
    communicator->share_window();
    return communicator;
}

}  // namespace plimsoll::mpi

#endif
