#pragma once
/// bf16 in memory, float in arithmetic: the upper half of an fp32, rounded to nearest, ties to even.

#include <bit>
#include <cstdint>

namespace plimsoll
{

/// NaN stays NaN, what is beyond the largest bf16 by half an ulp becomes infinite.
constexpr std::uint16_t bf16_bits(float value)
{
    const auto bits = std::bit_cast<std::uint32_t>(value);
    // A carry could make an infinity of a NaN: it is made quiet instead.
    const std::uint32_t rounded = bits + 0x7fffu + ((bits >> 16) & 1u);
    const bool is_nan = (bits & 0x7fffffffu) > 0x7f800000u;
    return static_cast<std::uint16_t>((is_nan ? bits | 0x400000u : rounded) >> 16);
}

struct Bf16
{
    Bf16() = default;
    constexpr explicit Bf16(float value) : bits(bf16_bits(value)) {}
    constexpr operator float() const { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

    std::uint16_t bits;
};
static_assert(sizeof(Bf16) == 2);

/// The type in which a kernel computes with values of T and sums them up.
template<class T>
struct WideType
{
    using type = T;
};
template<>
struct WideType<Bf16>
{
    using type = float;
};
template<class T>
using Wide = typename WideType<T>::type;

}  // namespace plimsoll
