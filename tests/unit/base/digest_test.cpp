// SHA-256 known answers: FIPS 180-4 examples (NIST CSRC "SHA256.pdf").

#include "base/digest.hpp"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/error.hpp"
#include "base/rng.hpp"

namespace plimsoll
{
namespace
{

TEST(Sha256, AgreesWithTheStandard)
{
    EXPECT_EQ(sha256_hex(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(sha256_hex("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
}

/// The definition, element by element.
std::uint64_t digest_by_definition(const std::vector<unsigned char>& data, std::size_t width, std::uint64_t first,
                                   std::uint64_t salt)
{
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < data.size() / width; ++i)
    {
        std::uint64_t bits = 0;
        for (std::size_t b = 0; b < width; ++b) { bits |= std::uint64_t{data[i * width + b]} << (8 * b); }
        sum += mix64(mix64((first + i) ^ salt) ^ bits);
    }
    return sum;
}

std::vector<unsigned char> random_bytes(std::size_t num, std::uint64_t seed)
{
    const CounterRng rng(seed, RngPurpose::test);
    std::vector<unsigned char> bytes(num);
    for (std::size_t i = 0; i < num; ++i) { bytes[i] = static_cast<unsigned char>(rng.bits(i)); }
    return bytes;
}

std::uint64_t digest_at(const unsigned char* data, std::size_t begin, std::size_t end, std::size_t width, std::uint64_t salt)
{
    return element_digest(data + begin * width, static_cast<std::int64_t>(end - begin), static_cast<std::int64_t>(width),
                          begin, salt);
}

TEST(ElementDigest, OfNothingIsZero)
{
    EXPECT_EQ(element_digest(nullptr, 0, 4, 17, 5), 0U);
}

TEST(ElementDigest, RefusesOtherWidths)
{
    const unsigned char byte[3] = {1, 2, 3};
    EXPECT_THROW(element_digest(byte, 1, 3, 0, 0), InternalError);
}

TEST(ElementDigest, IsTheDefinitionAtEveryWidthAndLength)
{
    for (const std::size_t width : {1U, 2U, 4U, 8U})
    {
        for (std::size_t num = 0; num < 70; ++num)
        {
            const std::vector<unsigned char> data = random_bytes(num * width, num);
            EXPECT_EQ(element_digest(data.data(), static_cast<std::int64_t>(num), static_cast<std::int64_t>(width), 1000, 77),
                      digest_by_definition(data, width, 1000, 77));
        }
    }
}

TEST(ElementDigest, ReadsUnalignedData)
{
    const std::vector<unsigned char> data = random_bytes(8 * 33, 3);
    std::vector<unsigned char> shifted(data.size() + 1);
    std::memcpy(shifted.data() + 1, data.data(), data.size());
    EXPECT_EQ(element_digest(shifted.data() + 1, 33, 8, 0, 1), element_digest(data.data(), 33, 8, 0, 1));
}

TEST(ElementDigest, AnyCutOfRowsAndColumnsAddsUp)
{
    constexpr std::size_t rows = 13, columns = 29;
    for (const std::size_t width : {1U, 2U, 4U, 8U})
    {
        const std::vector<unsigned char> data = random_bytes(rows * columns * width, width);
        const std::uint64_t whole = digest_at(data.data(), 0, rows * columns, width, 9);
        for (std::size_t row_cut = 0; row_cut <= rows; row_cut += 3)
        {
            for (std::size_t column_cut = 0; column_cut <= columns; ++column_cut)
            {
                std::uint64_t sum = digest_at(data.data(), 0, row_cut * columns, width, 9);  // one box of whole rows
                for (std::size_t r = row_cut; r < rows; ++r)                                 // two boxes of part rows
                {
                    sum += digest_at(data.data(), r * columns + column_cut, (r + 1) * columns, width, 9);
                    sum += digest_at(data.data(), r * columns, r * columns + column_cut, width, 9);
                }
                ASSERT_EQ(sum, whole);
            }
        }
    }
}

TEST(ElementDigest, SwapsBitsAndSaltsChangeIt)
{
    std::vector<std::uint32_t> data(100);
    const CounterRng rng(4, RngPurpose::test);
    for (std::size_t i = 0; i < data.size(); ++i) { data[i] = static_cast<std::uint32_t>(rng.bits(i)); }
    const std::uint64_t whole = element_digest(data.data(), 100, 4, 0, 1);
    for (std::size_t i = 0; i + 1 < data.size(); ++i)
    {
        std::swap(data[i], data[i + 1]);
        EXPECT_NE(element_digest(data.data(), 100, 4, 0, 1), whole);
        std::swap(data[i], data[i + 1]);
        data[i] ^= 1U << (i % 32);
        EXPECT_NE(element_digest(data.data(), 100, 4, 0, 1), whole);
        data[i] ^= 1U << (i % 32);
    }
    EXPECT_NE(element_digest(data.data(), 100, 4, 0, 2), whole);
    EXPECT_NE(element_digest(data.data(), 100, 4, 1, 1), whole);
    EXPECT_EQ(element_digest(data.data(), 100, 4, 0, 1), whole);
}

TEST(ElementDigest, ZerosAtDifferentPlacesDiffer)
{
    const std::vector<float> zeros(64, 0.0F);
    EXPECT_NE(element_digest(zeros.data(), 32, 4, 0, 1), element_digest(zeros.data(), 32, 4, 32, 1));
    EXPECT_NE(element_digest(zeros.data(), 32, 4, 0, 1), element_digest(zeros.data(), 33, 4, 0, 1));
}

}  // namespace
}  // namespace plimsoll
