#pragma once
/// What collectives cost: bytes sent, and a bound of their own memory.

#include <cstdint>

namespace plimsoll
{

enum class CollectiveKind : std::uint8_t { none, all_reduce, reduce_scatter, all_gather, send, recv };

/// Bytes that a rank sends, as every bandwidth-optimal algorithm does. `bytes` is the larger buffer of the call: all that is reduced
/// (all_reduce, reduce_scatter), all that is received (all_gather), the message.
///
///     all_reduce            2 n (g - 1) / g       its part of the input to each other, then its part of the result
///     reduce_scatter          n (g - 1) / g
///     all_gather              n (g - 1) / g
constexpr std::int64_t sent_bytes(CollectiveKind kind, std::int64_t bytes, std::int64_t group_size)
{
    switch (kind)
    {
        case CollectiveKind::all_reduce: return 2 * bytes * (group_size - 1) / group_size;
        case CollectiveKind::reduce_scatter:
        case CollectiveKind::all_gather: return bytes * (group_size - 1) / group_size;
        case CollectiveKind::send: return bytes;
        case CollectiveKind::none:
        case CollectiveKind::recv: break;
    }
    return 0;
}

/// Bytes of one half of what a communicator keeps to receive parts from others while it sums the parts before.
constexpr std::int64_t collective_chunk_bytes = std::int64_t{1} << 20;
/// Payload up to which a collective gathers whatever all ranks bring and sums it in one go.
constexpr std::int64_t collective_small_bytes = std::int64_t{256} << 10;

/// Payload from which an all-reduce of a group on one node goes through shared memory (measured with 2 and 4 ranks on 2 cores: it
/// gains from about 8 KiB on).
constexpr std::int64_t shared_least_bytes = std::int64_t{16} << 10;

/// The same for a group: every other member's part has a slot of at least 64 elements of 8 bytes.
constexpr std::int64_t collective_half_bytes(std::int64_t group_size)
{
    const std::int64_t smallest = 64 * 8 * (group_size - 1);
    return smallest > collective_chunk_bytes ? smallest : collective_chunk_bytes;
}

/// Whether a communicator, of one node or of several, keeps scratch once it did such an operation. A reduce-scatter always does.
constexpr bool all_reduce_takes_scratch(std::int64_t bytes, std::int64_t group_size)
{
    return bytes >= shared_least_bytes || bytes * group_size > collective_small_bytes;
}

/// Most bytes that a communicator allocates for itself: between nodes for one reduction at a time, on one node for all. Ranks that
/// are threads need none.
constexpr std::int64_t collective_scratch_bytes(std::int64_t group_size)
{
    return group_size > 1 ? 2 * collective_half_bytes(group_size) : 0;
}

}  // namespace plimsoll
