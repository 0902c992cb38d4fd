#pragma once
/// Checksum of what a file holds beside its data: HDF5's structures, small tables, padding. For io's own files.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace plimsoll
{

/// CRC32C of all bytes of the file that lie in none of `ranges` ([begin, end), in any order), in their order.
std::uint32_t crc32c_outside(const std::string& path, std::vector<std::pair<std::int64_t, std::int64_t>> ranges);

}  // namespace plimsoll
