#pragma once
/// What a byte-level BPE knows about its tokens, laid out for look-up: bytes to first ids, pairs to merges, whole pieces to ids.
/// Made once, never changed, shared by all encoders.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/tokenizer/huge_array.hpp"
#include "io/tokenizer/tokenizer_json.hpp"

namespace plimsoll
{

/// A definition as read from a file. Ids below 2^21, merges fewer than 2^22 - 1: both stand in one 64-bit word with a pair.
struct BpeDefinition
{
    std::vector<std::string> tokens;  ///< bytes by id; empty where there is none, or where no text can spell it
    std::array<std::int64_t, 256> byte_ids{};  ///< id of each byte alone, -1 where there is none
    std::vector<TokenizerMerge> merges;        ///< by rank. unused with by_rank
    bool by_rank = false;  ///< tiktoken: two parts merge where their bytes together are a token, the lowest id first
    bool whole_first = false;  ///< a piece that is a token is that token, whatever merges say
    std::int64_t unk_id = -1;  ///< stands for bytes without an id; -1: such bytes are dropped
    bool fuse_unk = false;
};

class BpeTables
{
  public:
    static constexpr std::uint32_t no_rank = (1U << 22) - 1;
    static constexpr std::uint32_t max_id = (1U << 21) - 1;

    /// @throws FormatError for ids or merges beyond the limits
    explicit BpeTables(BpeDefinition definition);

    /// 42 bits.
    static std::uint64_t pair_key(std::uint32_t left, std::uint32_t right)
    {
        return static_cast<std::uint64_t>(left) << 21 | right;
    }

    /// Rank of the merge of two ids, no_rank without one.
    std::uint32_t pair_rank(std::uint32_t left, std::uint32_t right) const { return pair_rank(pair_key(left, right)); }
    std::uint32_t pair_rank(std::uint64_t key) const
    {
        for (std::uint64_t slot = (key * pair_factor) >> pair_shift_;; slot = (slot + 1) & pair_mask_)
        {
            const std::uint64_t entry = pairs_[slot];
            if (entry >> 22 == key) { return static_cast<std::uint32_t>(entry) & no_rank; }
            if (entry == empty_pair) { return no_rank; }
        }
    }

    /// Where pair_rank() will look first.
    const void* pair_place(std::uint64_t key) const { return &pairs_[(key * pair_factor) >> pair_shift_]; }

    /// Same for two bytes, which both have an id.
    std::uint32_t byte_pair_rank(unsigned char left, unsigned char right) const
    {
        return byte_pairs_[static_cast<std::size_t>(left) << 8 | right];
    }

    /// Whether nothing can come before the merge of `left` and `right`, two bytes, where `before` and `behind` stand beside them (-1:
    /// none): no merge that takes one of them to its other side has a lower rank. Then it may be done at once.
    bool merges_first(int before, unsigned char left, unsigned char right, int behind) const
    {
        const std::uint32_t rank = byte_pair_rank(left, right);
        return rank != no_rank && (before < 0 || rank < lowest_before_[static_cast<std::size_t>(before) << 8 | left]) &&
               (behind < 0 ||
                rank < lowest_behind_[static_cast<std::size_t>(right) << 8 | static_cast<std::size_t>(behind)]);
    }

    /// -1 where there is none.
    std::int32_t byte_id(unsigned char byte) const { return byte_ids_[byte]; }

    std::uint32_t merged_id(std::uint32_t rank) const { return by_rank_ ? rank : merged_[rank]; }
    std::int64_t num_ranks() const { return num_ranks_; }
    const BpeDefinition& definition() const { return definition_; }
    bool has_all_bytes() const { return has_all_bytes_; }

    /// Where find_token() will look first.
    const void* token_place(std::uint64_t hash) const { return &whole_[hash >> whole_shift_]; }

    /// Id of the token with exactly these bytes, -1 without one. `hash` is hash_piece() of them.
    std::int64_t find_token(std::string_view bytes, std::uint64_t hash) const
    {
        for (std::uint64_t slot = hash >> whole_shift_;; slot = (slot + 1) & whole_mask_)
        {
            const WholeEntry& entry = whole_[slot];
            if (entry.id_plus_one == 0) { return -1; }
            if (entry.tag == static_cast<std::uint32_t>(hash) && definition_.tokens[entry.id_plus_one - 1] == bytes)
            {
                return entry.id_plus_one - 1;
            }
        }
    }

  private:
    struct WholeEntry
    {
        std::uint32_t tag;
        std::uint32_t id_plus_one;  ///< 0: none
    };
    static constexpr std::uint64_t pair_factor = 0x9E3779B97F4A7C15U;
    static constexpr std::uint64_t empty_pair = ~0ULL;

    void add_tokens();
    void add_listed_merges();
    void add_ranked_merges();
    void add_pair(std::uint32_t left, std::uint32_t right, std::uint32_t rank);
    void size_pairs(std::size_t num);
    void add_byte_pairs();
    void add_lowest_ranks();

    BpeDefinition definition_;
    HugeArray<std::uint64_t> pairs_;
    int pair_shift_ = 0;
    std::uint64_t pair_mask_ = 0;
    std::array<std::int32_t, 256> byte_ids_{};
    std::vector<std::uint32_t> byte_pairs_;
    std::vector<std::uint32_t> lowest_before_;  ///< by last byte of a part and the single byte behind it
    std::vector<std::uint32_t> lowest_behind_;  ///< by single byte and first byte of the part behind it
    std::vector<std::uint32_t> merged_;
    HugeArray<WholeEntry> whole_;
    int whole_shift_ = 0;
    std::uint64_t whole_mask_ = 0;
    std::int64_t num_ranks_ = 0;
    bool has_all_bytes_ = true;
    bool by_rank_ = false;
    bool is_spelled_ = true;  ///< each token has the bytes of the parts that make it
};

}  // namespace plimsoll
