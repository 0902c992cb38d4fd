#include "base/bf16.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

using namespace plimsoll;

namespace
{

float from_bits(std::uint32_t bits) { return std::bit_cast<float>(bits); }

}  // namespace

TEST(Bf16, RoundsToNearestAndTiesToEven)
{
    // HDF5's conversion rounds half up and makes 0x3f81 of the first one.
    EXPECT_EQ(Bf16(from_bits(0x3f808000)).bits, 0x3f80);
    EXPECT_EQ(Bf16(from_bits(0x3f808001)).bits, 0x3f81);
    EXPECT_EQ(Bf16(from_bits(0x3f807fff)).bits, 0x3f80);
    EXPECT_EQ(Bf16(from_bits(0x3f818000)).bits, 0x3f82);
    EXPECT_EQ(Bf16(from_bits(0xbf818000)).bits, 0xbf82);
    EXPECT_EQ(Bf16(from_bits(0x00008000)).bits, 0x0000);  // subnormal
    EXPECT_EQ(Bf16(-0.0F).bits, 0x8000);
}

TEST(Bf16, KeepsInfinityAndNan)
{
    const float infinity = std::numeric_limits<float>::infinity();
    EXPECT_EQ(float(Bf16(infinity)), infinity);
    EXPECT_EQ(float(Bf16(-infinity)), -infinity);
    EXPECT_EQ(float(Bf16(std::numeric_limits<float>::max())), infinity);
    EXPECT_EQ(float(Bf16(from_bits(0x7f7f0000))), from_bits(0x7f7f0000));  // the largest one
    // All bits set below would carry into the sign.
    for (const std::uint32_t nan : {0x7fc00000U, 0x7fffffffU, 0xffffffffU, 0x7f800001U})
    {
        EXPECT_TRUE(std::isnan(float(Bf16(from_bits(nan))))) << nan;
    }
}

TEST(Bf16, EveryValueComesBack)
{
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits)
    {
        const float value = from_bits(bits << 16);
        if (std::isnan(value)) { continue; }
        ASSERT_EQ(Bf16(value).bits, bits);
    }
}
