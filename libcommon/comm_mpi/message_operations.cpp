#include "comm_mpi/message_operations.hpp"

#ifdef PLIMSOLL_WITH_MPI

#include <algorithm>
#include <cstring>

#include "base/error.hpp"
#include "comm/rank_sum.hpp"

namespace plimsoll::mpi
{
namespace
{

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

bool is_small(const Place& place, std::int64_t bytes) { return bytes * place.size <= collective_small_bytes; }

}  // namespace

OperationPtr message_barrier(const Place& place, std::int64_t which)
{
    return std::make_shared<SmallGather>(place, "barrier", which, nullptr, 0);
}

OperationPtr message_all_reduce(const Place& place, std::int64_t which, const BufferView& data, ReduceOp op)
{
    if (is_small(place, data.bytes())) { return std::make_shared<SmallAllReduce>(place, which, data, op); }
    return std::make_shared<LargeAllReduce>(place, which, data, op);
}

OperationPtr message_reduce_scatter(const Place& place, std::int64_t which, const BufferView& input, const BufferView& output)
{
    return std::make_shared<ReduceScatter>(place, which, input, output);
}

OperationPtr message_all_gather(const Place& place, std::int64_t which, const BufferView& input, const BufferView& output)
{
    if (is_small(place, input.bytes())) { return std::make_shared<SmallAllGather>(place, which, input, output); }
    return std::make_shared<LargeAllGather>(place, which, input, output);
}

OperationPtr message_broadcast(const Place& place, std::int64_t which, const BufferView& data, int root)
{
    return std::make_shared<Broadcast>(place, which, data, root);
}

OperationPtr message_send(const Place& place, const BufferView& data, std::int64_t peer, std::int64_t which)
{
    return std::make_shared<Message>(place, Message::Way::send, data, peer, which);
}

OperationPtr message_recv(const Place& place, const BufferView& data, std::int64_t peer, std::int64_t which)
{
    return std::make_shared<Message>(place, Message::Way::recv, data, peer, which);
}

OperationPtr message_meeting(const Place& place, std::vector<int> ranks, int own)
{
    return std::make_shared<GroupMeeting>(place, std::move(ranks), own);
}

}  // namespace plimsoll::mpi

#endif
