#pragma once
/// Digests: SHA-256 for fingerprints, and a digest of tensors that no layout changes. Pure; any thread may call.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace plimsoll
{

/// Lower-case hex SHA-256 (64 characters).
std::string sha256_hex(std::string_view bytes);

/// Sum over elements of mix64(mix64(global index ^ salt) ^ bits) mod 2^64. Boxes of one tensor add up to the tensor's
/// digest in any cut; a swap of two unequal elements changes it. `element_bytes` 1, 2, 4 or 8; `bits` little-endian,
/// zero-extended; `num` consecutive elements whose first has global linear index `first_index`. `data` needs no alignment.
/// A box that is not a run of consecutive elements is summed row by row.
std::uint64_t element_digest(const void* data, std::int64_t num, std::int64_t element_bytes, std::uint64_t first_index,
                             std::uint64_t salt);

}  // namespace plimsoll
