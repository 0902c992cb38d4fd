// CRC32C: ISA-L computes, GF(2) matrices combine.

#include <isa-l/crc.h>

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "io/file.hpp"

namespace plimsoll
{

namespace
{

// A linear map on 32-bit words over GF(2): column i is the image of bit i.
using Matrix = std::array<std::uint32_t, 32>;

std::uint32_t apply(const Matrix& matrix, std::uint32_t word)
{
    std::uint32_t sum = 0;
    for (int bit = 0; word != 0; ++bit, word >>= 1)
    {
        if ((word & 1U) != 0) { sum ^= matrix[static_cast<std::size_t>(bit)]; }
    }
    return sum;
}

Matrix square(const Matrix& matrix)
{
    Matrix result{};
    for (std::size_t bit = 0; bit < 32; ++bit) { result[bit] = apply(matrix, matrix[bit]); }
    return result;
}

// What one zero bit appended to the message does to the (reflected) CRC register.
Matrix one_zero_bit()
{
    constexpr std::uint32_t castagnoli_reflected = 0x82F63B78U;
    Matrix matrix{};
    matrix[0] = castagnoli_reflected;
    for (std::size_t bit = 1; bit < 32; ++bit) { matrix[bit] = 1U << (bit - 1); }
    return matrix;
}

// powers[k]: 2^k zero bytes.
std::array<Matrix, 63> zero_byte_powers()
{
    std::array<Matrix, 63> powers{};
    powers[0] = square(square(square(one_zero_bit())));
    for (std::size_t k = 1; k < powers.size(); ++k) { powers[k] = square(powers[k - 1]); }
    return powers;
}

}  // namespace

std::uint32_t crc32c(const void* data, std::int64_t bytes, std::uint32_t crc)
{
    EXPECT(bytes >= 0);
    // crc32_iscsi takes an int length and leaves the inversions of the standard CRC to its caller.
    constexpr std::int64_t piece = std::int64_t{1} << 30;
    auto* cursor = static_cast<unsigned char*>(const_cast<void*>(data));
    std::uint32_t state = ~crc;
    while (bytes > 0)
    {
        const std::int64_t now = std::min(bytes, piece);
        state = crc32_iscsi(cursor, static_cast<int>(now), state);
        cursor += now;
        bytes -= now;
    }
    return ~state;
}

std::uint32_t crc32c_combine(std::uint32_t crc_a, std::uint32_t crc_b, std::int64_t bytes_b)
{
    EXPECT(bytes_b >= 0);
    static const std::array<Matrix, 63> powers = zero_byte_powers();
    for (std::size_t k = 0; bytes_b != 0; ++k, bytes_b >>= 1)
    {
        if ((bytes_b & 1) != 0) { crc_a = apply(powers[k], crc_a); }
    }
    return crc_a ^ crc_b;
}

}  // namespace plimsoll
