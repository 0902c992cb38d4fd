#include "comm_mpi/mpi_communicator.hpp"

#ifdef PLIMSOLL_WITH_MPI

#include <algorithm>
#include <cstring>
#include <exception>

#include "base/error.hpp"
#include "comm/rank_sum.hpp"
#include "comm_mpi/shared_operations.hpp"
#include "layout/collective_cost.hpp"

namespace plimsoll::mpi
{
namespace
{

/// One buffer of collective_scratch_bytes(): the reductions of a group have it in turn, in the order of issue, which is the same
/// on all members.
class Scratch
{
  public:
    explicit Scratch(std::int64_t group_size) : buffer_bytes_(collective_scratch_bytes(group_size)) {}
    std::int64_t next_turn() { return turns_++; }
    /// nullptr: others are before.
    char* take(std::int64_t turn)
    {
        if (turn != served_) { return nullptr; }
        if (!buffer_) { buffer_ = std::make_unique<char[]>(static_cast<std::size_t>(buffer_bytes_)); }
        return buffer_.get();
    }
    void give_back() { ++served_; }
    std::int64_t bytes() const { return buffer_ ? buffer_bytes_ : 0; }

  private:
    std::int64_t buffer_bytes_;
    std::unique_ptr<char[]> buffer_;
    std::int64_t turns_ = 0;
    std::int64_t served_ = 0;
};

/// Where an operation of a group runs.
struct Place
{
    std::shared_ptr<Engine> engine;
    std::shared_ptr<Watchdog> watchdog;
    std::shared_ptr<Scratch> scratch;
    MPI_Comm comm = MPI_COMM_NULL;
    int rank = 0;
    int size = 1;
};

// Tags: 0 for messages of the caller, then collectives in turn, then the making of groups. MPI promises up to 32767.
constexpr std::int64_t num_tags = 32000;
constexpr int group_tag = 32001;

/// A collective; messages of different ones carry different tags.
class Collective : public MessageOperation
{
  public:
    Collective(const Place& place, const char* what, std::int64_t which)
        : MessageOperation(*place.engine, place.watchdog, what, -1, which), place_(place),
          tag_(static_cast<int>(1 + which % num_tags))
    {
    }

  protected:
    int rank() const { return place_.rank; }
    int size() const { return place_.size; }
    /// The k-th other member, from the next one round.
    int other(int k) const { return (place_.rank + 1 + k) % place_.size; }
    void send(const void* data, std::int64_t bytes, int peer) { post_send(place_.comm, data, bytes, peer, tag_); }
    void recv(void* data, std::int64_t bytes, int peer) { post_recv(place_.comm, data, bytes, peer, tag_); }
    Scratch& scratch() { return *place_.scratch; }

  private:
    Place place_;
    int tag_;
};

/// Gathers equal blocks of all members; log2 n rounds (Bruck et al. 1997). Block j is that of member rank + j.
class SmallGather : public Collective
{
  public:
    SmallGather(const Place& place, const char* what, std::int64_t which, const void* mine, std::int64_t bytes)
        : Collective(place, what, which), bytes_(bytes), blocks_(static_cast<std::size_t>(bytes * size()))
    {
        if (bytes > 0) { std::memcpy(blocks_.data(), mine, static_cast<std::size_t>(bytes)); }
    }

  protected:
    bool next_round() override
    {
        if (distance_ >= size())
        {
            complete();
            return false;
        }
        const int num = std::min(distance_, size() - distance_);
        send(blocks_.data(), num * bytes_, (rank() - distance_ + size()) % size());
        recv(blocks_.data() + distance_ * bytes_, num * bytes_, (rank() + distance_) % size());
        distance_ *= 2;
        return true;
    }

    virtual void complete() {}
    const char* block_of(int member) const { return blocks_.data() + (member - rank() + size()) % size() * bytes_; }
    std::int64_t bytes() const { return bytes_; }

  private:
    std::int64_t bytes_;
    std::vector<char> blocks_;
    int distance_ = 1;
};

class SmallAllGather final : public SmallGather
{
  public:
    SmallAllGather(const Place& place, std::int64_t which, const BufferView& input, const BufferView& output)
        : SmallGather(place, "all_gather", which, input.data, input.bytes()), output_(static_cast<char*>(output.data))
    {
    }

  private:
    void complete() override
    {
        if (bytes() == 0) { return; }
        for (int member = 0; member < size(); ++member)
        {
            std::memcpy(output_ + member * bytes(), block_of(member), static_cast<std::size_t>(bytes()));
        }
    }

    char* output_;
};

class SmallAllReduce final : public SmallGather
{
  public:
    SmallAllReduce(const Place& place, std::int64_t which, const BufferView& data, ReduceOp op)
        : SmallGather(place, "all_reduce", which, data.data, data.bytes()), data_(data), op_(op)
    {
    }

  private:
    void complete() override
    {
        if (data_.count == 0) { return; }
        std::vector<const void*> inputs;
        for (int member = 0; member < size(); ++member) { inputs.push_back(block_of(member)); }
        reduce_ranks(data_.dtype, op_, data_.data, inputs.data(), size(), data_.count);
    }

    BufferView data_;
    ReduceOp op_;
};

/// What large reductions share: two halves of scratch, in each a slot for every member's part of a chunk.
class ChunkedReduction : public Collective
{
  public:
    ChunkedReduction(const Place& place, const char* what, std::int64_t which, Dtype dtype, ReduceOp op)
        : Collective(place, what, which), dtype_(dtype), op_(op), turn_(scratch().next_turn())
    {
    }

    bool advance() override
    {
        if (buffer_ == nullptr) { buffer_ = scratch().take(turn_); }
        if (buffer_ == nullptr) { return false; }
        const bool moved = Collective::advance();
        if (is_done) { scratch().give_back(); }
        return moved;
    }

  protected:
    std::int64_t width() const { return dtype_bytes(dtype_); }
    /// Elements of a slot when all others have one, a multiple of 64.
    std::int64_t largest_slot() const { return collective_half_bytes(size()) / width() / (size() - 1) / 64 * 64; }
    /// Where a member's part of chunk `chunk` is received. @pre slot_elements x (size - 1) elements fit into a half
    char* slot(std::int64_t chunk, int member, std::int64_t slot_elements)
    {
        const int index = (member - rank() - 1 + size()) % size();
        return buffer_ + chunk % 2 * collective_half_bytes(size()) + index * slot_elements * width();
    }
    void reduce(char* output, const char* mine, std::int64_t chunk, std::int64_t count, std::int64_t slot_elements)
    {
        if (count == 0) { return; }
        inputs_.clear();
        for (int member = 0; member < size(); ++member)
        {
            inputs_.push_back(member == rank() ? mine : slot(chunk, member, slot_elements));
        }
        reduce_ranks(dtype_, op_, output, inputs_.data(), size(), count);
    }

  private:
    Dtype dtype_;
    ReduceOp op_;
    std::int64_t turn_;
    char* buffer_ = nullptr;
    std::vector<const void*> inputs_;
};

/// Each member sums its part of a chunk from all and sends the sum to all.
class LargeAllReduce final : public ChunkedReduction
{
  public:
    LargeAllReduce(const Place& place, std::int64_t which, const BufferView& data, ReduceOp op)
        : ChunkedReduction(place, "all_reduce", which, data.dtype, op), data_(static_cast<char*>(data.data)),
          count_(data.count), slot_elements_(largest_slot()), chunk_elements_(slot_elements_ * size()),
          num_chunks_((count_ + chunk_elements_ - 1) / chunk_elements_)
    {
    }

  private:
    std::int64_t chunk_count(std::int64_t chunk) const { return std::min(chunk_elements_, count_ - chunk * chunk_elements_); }
    char* at(std::int64_t chunk, std::int64_t element) { return data_ + (chunk * chunk_elements_ + element) * width(); }
    Part part(std::int64_t chunk, int member) const { return part_of(chunk_count(chunk), size(), member); }

    void exchange(std::int64_t chunk)
    {
        const Part mine = part(chunk, rank());
        for (int k = 0; k + 1 < size(); ++k)
        {
            const int peer = other(k);
            const Part theirs = part(chunk, peer);
            recv(slot(chunk, peer, slot_elements_), mine.count * width(), peer);
            send(at(chunk, theirs.first), theirs.count * width(), peer);
        }
    }

    void spread(std::int64_t chunk)
    {
        const Part mine = part(chunk, rank());
        for (int k = 0; k + 1 < size(); ++k)
        {
            const int peer = other(k);
            const Part theirs = part(chunk, peer);
            recv(at(chunk, theirs.first), theirs.count * width(), peer);
            send(at(chunk, mine.first), mine.count * width(), peer);
        }
    }

    bool next_round() override
    {
        if (chunk_ < 0) { exchange(0); }
        else if (chunk_ == num_chunks_) { return false; }
        else
        {
            if (chunk_ + 1 < num_chunks_) { exchange(chunk_ + 1); }
            const Part mine = part(chunk_, rank());
            reduce(at(chunk_, mine.first), at(chunk_, mine.first), chunk_, mine.count, slot_elements_);
            spread(chunk_);
        }
        ++chunk_;
        return true;
    }

    char* data_;
    std::int64_t count_;
    std::int64_t slot_elements_;
    std::int64_t chunk_elements_;
    std::int64_t num_chunks_;
    std::int64_t chunk_ = -1; ///< whose parts have arrived
};

class ReduceScatter final : public ChunkedReduction
{
  public:
    ReduceScatter(const Place& place, std::int64_t which, const BufferView& input, const BufferView& output)
        : ChunkedReduction(place, "reduce_scatter", which, input.dtype, ReduceOp::sum),
          input_(static_cast<const char*>(input.data)), output_(static_cast<char*>(output.data)), count_(output.count),
          chunk_elements_(largest_slot()),
          num_chunks_((count_ + chunk_elements_ - 1) / chunk_elements_)
    {
    }

  private:
    std::int64_t chunk_count(std::int64_t chunk) const { return std::min(chunk_elements_, count_ - chunk * chunk_elements_); }
    const char* part_at(int member, std::int64_t chunk) const
    {
        return input_ + (member * count_ + chunk * chunk_elements_) * width();
    }

    void exchange(std::int64_t chunk)
    {
        for (int k = 0; k + 1 < size(); ++k)
        {
            const int peer = other(k);
            recv(slot(chunk, peer, chunk_elements_), chunk_count(chunk) * width(), peer);
            send(part_at(peer, chunk), chunk_count(chunk) * width(), peer);
        }
    }

    bool next_round() override
    {
        if (num_chunks_ == 0 || chunk_ == num_chunks_) { return false; }
        if (chunk_ < 0) { exchange(0); }
        else
        {
            if (chunk_ + 1 < num_chunks_) { exchange(chunk_ + 1); }
            reduce(output_ + chunk_ * chunk_elements_ * width(), part_at(rank(), chunk_), chunk_, chunk_count(chunk_),
                   chunk_elements_);
        }
        ++chunk_;
        return true;
    }

    const char* input_;
    char* output_;
    std::int64_t count_;
    std::int64_t chunk_elements_;
    std::int64_t num_chunks_;
    std::int64_t chunk_ = -1; ///< whose parts have arrived
};

class LargeAllGather final : public Collective
{
  public:
    LargeAllGather(const Place& place, std::int64_t which, const BufferView& input, const BufferView& output)
        : Collective(place, "all_gather", which), input_(static_cast<const char*>(input.data)),
          output_(static_cast<char*>(output.data)), bytes_(input.bytes())
    {
    }

  private:
    bool next_round() override
    {
        if (posted_) { return false; }
        posted_ = true;
        for (int k = 0; k + 1 < size(); ++k)
        {
            recv(output_ + other(k) * bytes_, bytes_, other(k));
            send(input_, bytes_, other(k));
        }
        char* mine = output_ + rank() * bytes_;
        if (mine != input_) { std::memcpy(mine, input_, static_cast<std::size_t>(bytes_)); }
        return true;
    }

    const char* input_;
    char* output_;
    std::int64_t bytes_;
    bool posted_ = false;
};

/// A binomial tree below the root.
class Broadcast final : public Collective
{
  public:
    Broadcast(const Place& place, std::int64_t which, const BufferView& data, int root)
        : Collective(place, "broadcast", which), data_(data), root_(root), place_in_tree_((rank() - root + size()) % size())
    {
    }

  private:
    int member(int place_in_tree) const { return (place_in_tree + root_) % size(); }

    bool next_round() override
    {
        switch (round_++)
        {
            case 0:
                // The lowest bit set says who the parent is; below it lie the children.
                while (span_ < size() && (place_in_tree_ & span_) == 0) { span_ *= 2; }
                if (place_in_tree_ != 0) { recv(data_.data, data_.bytes(), member(place_in_tree_ - span_)); }
                return true;
            case 1:
                for (int child = span_ / 2; child >= 1; child /= 2)
                {
                    if (place_in_tree_ + child < size()) { send(data_.data, data_.bytes(), member(place_in_tree_ + child)); }
                }
                return true;
            default: return false;
        }
    }

    BufferView data_;
    int root_;
    int place_in_tree_;
    int span_ = 1;
    int round_ = 0;
};

class Message final : public MessageOperation
{
  public:
    enum class Way { send, recv };
    Message(const Place& place, Way way, const BufferView& data, std::int64_t peer, std::int64_t which)
        : MessageOperation(*place.engine, place.watchdog, way == Way::send ? "send to" : "recv from", peer, which),
          comm_(place.comm), way_(way), data_(data), peer_(static_cast<int>(peer))
    {
    }

  private:
    bool next_round() override
    {
        if (posted_) { return false; }
        posted_ = true;
        if (way_ == Way::send) { post_send(comm_, data_.data, data_.bytes(), peer_, 0); }
        else { post_recv(comm_, data_.data, data_.bytes(), peer_, 0); }
        return true;
    }

    MPI_Comm comm_;
    Way way_;
    BufferView data_;
    int peer_;
    bool posted_ = false;
};

/// Holds the members of a group to be back until all are there (dissemination): MPI's own call blocks and spins.
class GroupMeeting final : public MessageOperation
{
  public:
    /// `ranks`: in `place.comm`, `own` of them this one
    GroupMeeting(const Place& place, std::vector<int> ranks, int own)
        : MessageOperation(*place.engine, place.watchdog, "making of a group", -1, 0), comm_(place.comm),
          ranks_(std::move(ranks)), own_(own)
    {
    }

  private:
    bool next_round() override
    {
        const int num = static_cast<int>(ranks_.size());
        if (distance_ >= num) { return false; }
        post_send(comm_, nullptr, 0, ranks_[static_cast<std::size_t>((own_ + distance_) % num)], group_tag);
        post_recv(comm_, nullptr, 0, ranks_[static_cast<std::size_t>((own_ - distance_ + num) % num)], group_tag);
        distance_ *= 2;
        return true;
    }

    MPI_Comm comm_;
    std::vector<int> ranks_;
    int own_;
    int distance_ = 1;
};

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
        if (is_small(data.bytes())) { return start(std::make_shared<SmallAllReduce>(place_, sequence, data, op)); }
        return start(std::make_shared<LargeAllReduce>(place_, sequence, data, op));
    }

    Work reduce_scatter(BufferView input, BufferView output, Stream&) override
    {
        check_view(input);
        check_view(output);
        EXPECT(can_reduce(input.dtype) && input.dtype == output.dtype && input.count == output.count * size());
        const std::int64_t sequence = begin();
        if (window_) { return start_shared(shared_reduce_scatter(window_, input, output), sequence); }
        return start(std::make_shared<ReduceScatter>(place_, sequence, input, output));
    }

    Work all_gather(BufferView input, BufferView output, Stream&) override
    {
        check_view(input);
        check_view(output);
        EXPECT(input.dtype == output.dtype && output.count == input.count * size());
        const std::int64_t sequence = begin();
        if (is_small(input.bytes())) { return start(std::make_shared<SmallAllGather>(place_, sequence, input, output)); }
        return start(std::make_shared<LargeAllGather>(place_, sequence, input, output));
    }

    Work broadcast(BufferView data, std::int64_t root, Stream&) override
    {
        check_view(data);
        EXPECT(root >= 0 && root < size());
        return start(std::make_shared<Broadcast>(place_, begin(), data, static_cast<int>(root)));
    }

    void barrier() override { start(std::make_shared<SmallGather>(place_, "barrier", begin(), nullptr, 0)).synchronize(); }

    Work send(BufferView data, std::int64_t peer, Stream&) override { return message(Message::Way::send, data, peer); }
    Work recv(BufferView data, std::int64_t peer, Stream&) override { return message(Message::Way::recv, data, peer); }

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
        start(std::make_shared<GroupMeeting>(place_, group_ranks, static_cast<int>(own - ranks.begin()))).synchronize();
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

    bool is_small(std::int64_t bytes) const { return bytes * size() <= collective_small_bytes; }

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
        start(std::make_shared<SmallAllGather>(place_, 0, input, output)).synchronize();
        return all;
    }

    Work message(Message::Way way, const BufferView& data, std::int64_t peer)
    {
        check_view(data);
        EXPECT(peer >= 0 && peer < size() && peer != rank());
        place_.engine->enter();
        std::int64_t& count = num_messages_[static_cast<std::size_t>(2 * peer + (way == Message::Way::send ? 0 : 1))];
        return start(std::make_shared<Message>(place_, way, data, peer, ++count));
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
