#include "base/digest.hpp"

#include <openssl/evp.h>

#include <array>
#include <bit>
#include <cstring>

#include "base/error.hpp"
#include "base/rng.hpp"

namespace plimsoll
{
namespace
{

static_assert(std::endian::native == std::endian::little, "element bits are read in file order");

template<class Word>
inline __attribute__((always_inline)) std::uint64_t digest_body(const unsigned char* data, std::int64_t num,
                                                                std::uint64_t first_index, std::uint64_t salt)
{
    std::uint64_t sum = 0;
    for (std::int64_t i = 0; i < num; ++i)
    {
        Word word;
        std::memcpy(&word, data + i * static_cast<std::int64_t>(sizeof(Word)), sizeof(Word));
        sum += mix64(mix64((first_index + static_cast<std::uint64_t>(i)) ^ salt) ^ word);
    }
    return sum;
}

using DigestRun = std::uint64_t (*)(const unsigned char*, std::int64_t, std::uint64_t, std::uint64_t);

template<class Word>
std::uint64_t digest_base(const unsigned char* data, std::int64_t num, std::uint64_t first_index, std::uint64_t salt)
{
    return digest_body<Word>(data, num, first_index, salt);
}

#if defined(__x86_64__)
template<class Word>
__attribute__((target("avx2"))) std::uint64_t digest_avx2(const unsigned char* data, std::int64_t num,
                                                          std::uint64_t first_index, std::uint64_t salt)
{
    return digest_body<Word>(data, num, first_index, salt);
}
#endif

template<class Word>
DigestRun best_digest()
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) { return digest_avx2<Word>; }
#endif
    return digest_base<Word>;
}

}  // namespace

std::string sha256_hex(std::string_view bytes)
{
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int length = 0;
    const int ok = EVP_Digest(bytes.data(), bytes.size(), digest.data(), &length, EVP_sha256(), nullptr);
    ENSURE(ok == 1 && length == 32);
    constexpr std::string_view digits = "0123456789abcdef";
    std::string hex;
    hex.reserve(64);
    for (unsigned int i = 0; i < length; ++i)
    {
        hex += digits[digest[i] >> 4];
        hex += digits[digest[i] & 15];
    }
    return hex;
}

std::uint64_t element_digest(const void* data, std::int64_t num, std::int64_t element_bytes, std::uint64_t first_index,
                             std::uint64_t salt)
{
    const auto* bytes = static_cast<const unsigned char*>(data);
    switch (element_bytes)
    {
        case 1: return best_digest<std::uint8_t>()(bytes, num, first_index, salt);
        case 2: return best_digest<std::uint16_t>()(bytes, num, first_index, salt);
        case 4: return best_digest<std::uint32_t>()(bytes, num, first_index, salt);
        case 8: return best_digest<std::uint64_t>()(bytes, num, first_index, salt);
        default: throw InternalError(fmt::format("elements of {} bytes have no digest (1, 2, 4 or 8)", element_bytes));
    }
}

}  // namespace plimsoll
