#pragma once
/// The generated tables; unicode.hpp and nfc.hpp are what others use. scripts/make_unicode_tables.py says what the numbers mean.

#include <cstddef>
#include <cstdint>

namespace plimsoll::unicode_data
{

extern const char* const version;
extern const std::uint32_t properties[];
extern const std::size_t properties_size;
extern const std::uint32_t combining[];
extern const std::size_t combining_size;
extern const std::uint32_t decompositions[];
extern const std::size_t decompositions_size;

}  // namespace plimsoll::unicode_data
