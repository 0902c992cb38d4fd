#pragma once
/// The generated tables; unicode.hpp is what others use. scripts/make_unicode_tables.py says what the numbers mean.

#include <cstddef>
#include <cstdint>

namespace plimsoll::unicode_data
{

extern const char* const version;
extern const std::uint32_t properties[];
extern const std::size_t properties_size;

}  // namespace plimsoll::unicode_data
