#pragma once
/// Element types of tensors, buffers and files, with the names used in options and files.

#include <cstdint>
#include <string_view>

namespace plimsoll
{

/// Persistent values (checkpoint index): do not renumber.
enum class Dtype : std::uint8_t
{
    f32 = 0,
    f64 = 1,
    bf16 = 2,
    f16 = 3,
    f8_e4m3 = 4,
    f8_e5m2 = 5,
    i32 = 6,
    i64 = 7,
    u8 = 8,
    u16 = 9,
    u32 = 10,
    u64 = 11,
};

constexpr std::int64_t dtype_bytes(Dtype dtype)
{
    switch (dtype)
    {
        case Dtype::f8_e4m3:
        case Dtype::f8_e5m2:
        case Dtype::u8: return 1;
        case Dtype::bf16:
        case Dtype::f16:
        case Dtype::u16: return 2;
        case Dtype::f32:
        case Dtype::i32:
        case Dtype::u32: return 4;
        default: return 8;
    }
}

constexpr std::string_view dtype_name(Dtype dtype)
{
    switch (dtype)
    {
        case Dtype::f32: return "f32";
        case Dtype::f64: return "f64";
        case Dtype::bf16: return "bf16";
        case Dtype::f16: return "f16";
        case Dtype::f8_e4m3: return "f8_e4m3";
        case Dtype::f8_e5m2: return "f8_e5m2";
        case Dtype::i32: return "i32";
        case Dtype::i64: return "i64";
        case Dtype::u8: return "u8";
        case Dtype::u16: return "u16";
        case Dtype::u32: return "u32";
        case Dtype::u64: return "u64";
    }
    return "unknown";
}

}  // namespace plimsoll
