#pragma once
/// What collectives cost: a bound of their own memory.

#include <cstdint>

namespace plimsoll
{

/// Bytes of one half of what a communicator keeps to receive parts from others while it sums the parts before.
constexpr std::int64_t collective_chunk_bytes = std::int64_t{1} << 20;
/// Payload up to which a collective gathers whatever all ranks bring and sums it in one go.
constexpr std::int64_t collective_small_bytes = std::int64_t{256} << 10;

/// The same for a group: every other member's part has a slot of at least 64 elements of 8 bytes.
constexpr std::int64_t collective_half_bytes(std::int64_t group_size)
{
    const std::int64_t smallest = 64 * 8 * (group_size - 1);
    return smallest > collective_chunk_bytes ? smallest : collective_chunk_bytes;
}

/// Most bytes that a communicator allocates for itself for one operation at a time. Ranks that are threads need none.
constexpr std::int64_t collective_scratch_bytes(std::int64_t group_size)
{
    return group_size > 1 ? 2 * collective_half_bytes(group_size) : 0;
}

}  // namespace plimsoll
