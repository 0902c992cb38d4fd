#pragma once
/// Pieces that were met, with their ids: tables of fixed size for up to 15, up to 31 and more bytes. Of one thread. A line of the
/// processor's cache holds two short entries or one long; a new entry pushes out the older of its line.

#include <cstdint>
#include <cstring>
#include <string_view>

#include "io/tokenizer/huge_array.hpp"
#include "io/tokenizer/piece_hash.hpp"

namespace plimsoll
{

class PieceCache
{
  public:
    static constexpr std::size_t short_bytes = 15;
    static constexpr std::size_t short_ids = 4;
    static constexpr std::size_t long_bytes = 31;
    static constexpr std::size_t long_ids = 8;

    /// Its first id carries the number of ids - 1 in the highest 4 bits.
    struct alignas(32) Short
    {
        std::uint64_t low;
        std::uint64_t high;  ///< number of bytes in the highest byte
        std::uint32_t ids[short_ids];
    };
    struct alignas(64) Long
    {
        std::uint64_t words[4];  ///< number of bytes in the highest byte
        std::uint32_t ids[long_ids];
    };
    static constexpr std::uint32_t id_mask = 0x0FFFFFFFU;

    PieceCache()
        : short_(std::size_t{2} << short_bits),
          long_(std::size_t{2} << long_bits),
          stored_(std::size_t{1} << stored_bits),
          store_(store_words)
    {
    }

    /// Both entries of the line that a short piece belongs to.
    Short* short_line(std::uint64_t hash) { return &short_[hash >> (64 - short_bits) << 1]; }
    /// Both entries for a longer one.
    Long* long_line(std::uint64_t hash) { return &long_[hash >> (64 - long_bits) << 1]; }

    static void put(Short* line, PieceWords key, const std::uint32_t* ids, std::size_t num)
    {
        line[1] = line[0];
        line[0].low = key.low;
        line[0].high = key.high;
        std::memcpy(line[0].ids, ids, num * sizeof(std::uint32_t));
        line[0].ids[0] |= static_cast<std::uint32_t>(num - 1) << 28;
    }

    static void put(Long* line, const std::uint64_t* words, const std::uint32_t* ids, std::size_t num)
    {
        line[1] = line[0];
        std::memcpy(line[0].words, words, sizeof line[0].words);
        std::memcpy(line[0].ids, ids, num * sizeof(std::uint32_t));
        line[0].ids[0] |= static_cast<std::uint32_t>(num - 1) << 28;
    }

    /// What the tables above have no room for, up to store_bytes each, in one store that is emptied when it is full.
    struct Stored
    {
        std::uint64_t hash;
        std::uint32_t offset;  ///< in the store: ids, then bytes
        std::uint16_t bytes;   ///< 0: none
        std::uint16_t num_ids;
    };
    static constexpr std::size_t store_bytes = 1024;

    /// Ids of a piece, null without.
    const std::uint32_t* find_stored(std::string_view piece, std::uint64_t hash, std::size_t& num)
    {
        const Stored& entry = stored_[hash >> (64 - stored_bits)];
        if (entry.hash != hash || entry.bytes != piece.size()) { return nullptr; }
        const std::uint32_t* ids = &store_[entry.offset];
        if (std::memcmp(ids + entry.num_ids, piece.data(), piece.size()) != 0) { return nullptr; }
        num = entry.num_ids;
        return ids;
    }

    void store(std::string_view piece, std::uint64_t hash, const std::uint32_t* ids, std::size_t num)
    {
        const std::size_t words = num + (piece.size() + 3) / 4;
        if (store_used_ + words > store_words)
        {
            stored_.clear();
            store_used_ = 0;
        }
        std::uint32_t* place = &store_[store_used_];
        std::memcpy(place, ids, num * sizeof(std::uint32_t));
        std::memcpy(place + num, piece.data(), piece.size());
        stored_[hash >> (64 - stored_bits)] = {hash, static_cast<std::uint32_t>(store_used_),
                                               static_cast<std::uint16_t>(piece.size()),
                                               static_cast<std::uint16_t>(num)};
        store_used_ += words;
    }

  private:
    static constexpr int stored_bits = 16;                            // 1 MiB
    static constexpr std::size_t store_words = std::size_t{4} << 20;  // 16 MiB
    static constexpr int short_bits = 17;                             // 8 MiB
    static constexpr int long_bits = 16;                              // 8 MiB
    HugeArray<Short> short_;
    HugeArray<Long> long_;
    HugeArray<Stored> stored_;
    HugeArray<std::uint32_t> store_;
    std::size_t store_used_ = 0;
};

}  // namespace plimsoll
