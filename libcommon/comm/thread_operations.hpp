#pragma once
/// Collectives and messages between threads as state machines over shared posts. Internal to comm.

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "comm/thread_world.hpp"

namespace plimsoll::threads
{

enum class Kind
{
    all_reduce,
    reduce_scatter,
    all_gather,
    broadcast,
    barrier
};

const char* name_of(Kind kind);

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
    std::string text() const;  ///< "all_reduce of 10 f32 (sum)"
};

struct Post
{
    Call call;
    SharedBuffer buffer;
    std::atomic<bool> is_there{false};
};

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

/// Posts what this member (of group rank `own`) asks for; the operation is issued afterwards.
std::shared_ptr<Operation> post_collective(std::shared_ptr<Group> group, std::int64_t own, ThreadRank& rank,
                                           std::shared_ptr<Collective> collective, const Call& call);
/// `receiver`, `sender`: world ranks
std::shared_ptr<Operation> post_send(std::shared_ptr<Message> message, const BufferView& data, ThreadRank& rank,
                                     std::int64_t receiver);
std::shared_ptr<Operation> post_receive(std::shared_ptr<Message> message, const BufferView& data, ThreadRank& rank,
                                        std::int64_t sender);

}  // namespace plimsoll::threads
