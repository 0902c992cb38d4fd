#pragma once
/// Pieces that were met, with their ids: tables of fixed size for up to 15, up to 31 and more bytes. Of one thread. Four entries
/// make a set, of which a new one pushes out the last. A line of the processor's cache holds two short entries or one long.

#include <array>
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
    using LongWords = std::array<std::uint64_t, 4>;
    struct alignas(64) Long
    {
        LongWords words;  ///< number of bytes in the highest byte
        std::uint32_t ids[long_ids];
    };
    static constexpr std::size_t ways = 4;
    static constexpr std::uint32_t id_mask = 0x0FFFFFFFU;

    PieceCache()
        : short_(ways << short_bits),
          long_(ways << long_bits),
          stored_(stored_ways << stored_bits),
          store_(store_words)
    {
    }

    /// The set of `ways` entries that a short piece belongs to, those met last in front.
    Short* short_set(std::uint64_t hash) { return &short_[hash >> (64 - short_bits) << 2]; }
    /// Same for a longer one.
    Long* long_set(std::uint64_t hash) { return &long_[hash >> (64 - long_bits) << 2]; }

    /// Looks behind the set's first two entries; null where it is not there.
    static const Short* find_behind(const Short* set, PieceWords key)
    {
        for (std::size_t i = 2; i < ways; ++i)
        {
            if (set[i].low == key.low && set[i].high == key.high) { return &set[i]; }
        }
        return nullptr;
    }
    static const Long* find(const Long* set, const LongWords& words)
    {
        for (std::size_t i = 0; i < ways; ++i)
        {
            if (is_same(set[i].words, words)) { return &set[i]; }
        }
        return nullptr;
    }

    /// In front of its set. The entry that it had there before goes, else the last one.
    static void put(Short* set, PieceWords key, const std::uint32_t* ids, std::size_t num)
    {
        std::size_t gone = 0;
        while (gone + 1 < ways && (set[gone].low != key.low || set[gone].high != key.high)) { ++gone; }
        for (; gone > 0; --gone) { set[gone] = set[gone - 1]; }
        set->low = key.low;
        set->high = key.high;
        put_ids(set->ids, ids, num);
    }
    static void put(Long* set, const LongWords& words, const std::uint32_t* ids, std::size_t num)
    {
        std::size_t gone = 0;
        while (gone + 1 < ways && !is_same(set[gone].words, words)) { ++gone; }
        for (; gone > 0; --gone) { set[gone] = set[gone - 1]; }
        set->words = words;
        put_ids(set->ids, ids, num);
    }

    /// Key of a longer piece. @pre 16 to long_bytes
    static LongWords long_words(const char* at, std::size_t bytes)
    {
        LongWords words{load_u64(at), load_u64(at + 8), 0, 0};
        if (bytes > 16)
        {
            const PieceWords tail = load_piece(at + 16, bytes - 16);
            words[2] = tail.low;
            words[3] = tail.high;
        }
        words[3] |= static_cast<std::uint64_t>(bytes) << 56;
        return words;
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
    static constexpr std::size_t stored_ways = 8;

    /// The entries that a piece of this kind may have.
    Stored* stored_line(std::uint64_t hash) { return &stored_[(hash >> (64 - stored_bits)) * stored_ways]; }

    /// Ids of a piece, null without.
    const std::uint32_t* find_stored(std::string_view piece, std::uint64_t hash, std::size_t& num)
    {
        const Stored* line = stored_line(hash);
        for (std::size_t i = 0; i < stored_ways; ++i)
        {
            const Stored& entry = line[i];
            if (entry.hash != hash || entry.bytes != piece.size()) { continue; }
            const std::uint32_t* ids = &store_[entry.offset];
            if (std::memcmp(ids + entry.num_ids, piece.data(), piece.size()) != 0) { continue; }
            num = entry.num_ids;
            return ids;
        }
        return nullptr;
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
        Stored* line = stored_line(hash);
        for (std::size_t i = stored_ways - 1; i > 0; --i) { line[i] = line[i - 1]; }
        line[0] = {hash, static_cast<std::uint32_t>(store_used_), static_cast<std::uint16_t>(piece.size()),
                   static_cast<std::uint16_t>(num)};
        store_used_ += words;
    }

  private:
    static bool is_same(const LongWords& a, const LongWords& b)
    {
        return ((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3])) == 0;
    }

    static void put_ids(std::uint32_t* place, const std::uint32_t* ids, std::size_t num)
    {
        std::memcpy(place, ids, num * sizeof(std::uint32_t));
        place[0] |= static_cast<std::uint32_t>(num - 1) << 28;
    }

    static constexpr int stored_bits = 14;                            // 2 MiB
    static constexpr std::size_t store_words = std::size_t{4} << 20;  // 16 MiB
    static constexpr int short_bits = 16;                             // 8 MiB
    static constexpr int long_bits = 15;                              // 8 MiB
    HugeArray<Short> short_;
    HugeArray<Long> long_;
    HugeArray<Stored> stored_;
    HugeArray<std::uint32_t> store_;
    std::size_t store_used_ = 0;
};

}  // namespace plimsoll
