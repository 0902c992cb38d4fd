#pragma once
/// One hash for pieces in all tables, of which the high bits are the best mixed.

#include <cstdint>
#include <cstring>
#include <string_view>

namespace plimsoll
{

/// Up to 16 bytes, zero-padded.
struct PieceWords
{
    std::uint64_t low = 0;
    std::uint64_t high = 0;
};

inline std::uint64_t load_u64(const char* at)
{
    std::uint64_t value = 0;
    std::memcpy(&value, at, 8);
    return value;
}

/// @pre bytes 1 to 16. Reads nothing outside [at, at + bytes).
inline PieceWords load_piece(const char* at, std::size_t bytes)
{
    if (bytes >= 8)
    {
        const std::uint64_t tail = load_u64(at + bytes - 8);
        return {load_u64(at), bytes == 8 ? 0 : tail >> (8 * (16 - bytes))};
    }
    if (bytes >= 4)
    {
        std::uint32_t first = 0;
        std::uint32_t last = 0;
        std::memcpy(&first, at, 4);
        std::memcpy(&last, at + bytes - 4, 4);
        return {first | static_cast<std::uint64_t>(last) << (8 * (bytes - 4)), 0};
    }
    std::uint64_t value = static_cast<unsigned char>(at[0]);
    if (bytes > 1) { value |= static_cast<std::uint64_t>(static_cast<unsigned char>(at[1])) << 8; }
    if (bytes > 2) { value |= static_cast<std::uint64_t>(static_cast<unsigned char>(at[2])) << 16; }
    return {value, 0};
}

inline std::uint64_t hash_words(PieceWords words, std::uint64_t bytes)
{
    std::uint64_t h = (words.low ^ bytes << 56) * 0x9E3779B97F4A7C15U;
    h ^= words.high * 0xC2B2AE3D27D4EB4FU;
    h ^= h >> 29;
    return h * 0xBF58476D1CE4E5B9U;
}

inline std::uint64_t hash_piece(std::string_view piece)
{
    const char* at = piece.data();
    std::size_t left = piece.size();
    std::uint64_t seed = piece.size();
    for (; left > 16; at += 16, left -= 16) { seed = hash_words({load_u64(at), load_u64(at + 8) ^ seed}, 16) + seed; }
    if (left == 0) { return seed; }
    PieceWords words = load_piece(at, left);
    if (piece.size() > 16) { words.high ^= seed; }
    return hash_words(words, left);
}

}  // namespace plimsoll
