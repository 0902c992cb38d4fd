#pragma once
/// Numbers of Megatron's index. The format: docs/token_formats.md.

#include <cstdint>

namespace plimsoll::megatron_layout
{

constexpr char magic[] = "MMIDIDX\0";  // nine bytes with the one that ends the literal
constexpr std::int64_t magic_bytes = 9;
constexpr std::int64_t version = 1;
constexpr std::int64_t header_bytes = 34;

constexpr std::uint8_t code_u8 = 1;
constexpr std::uint8_t code_i8 = 2;
constexpr std::uint8_t code_i16 = 3;
constexpr std::uint8_t code_i32 = 4;
constexpr std::uint8_t code_i64 = 5;
constexpr std::uint8_t code_f64 = 6;
constexpr std::uint8_t code_f32 = 7;
constexpr std::uint8_t code_u16 = 8;

}  // namespace plimsoll::megatron_layout
