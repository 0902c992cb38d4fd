#include "io/tokenizer/bpe_tables.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "io/tokenizer/piece_hash.hpp"

namespace plimsoll
{

namespace
{

// log2 of a table that `num` entries fill to a third or two.
int table_bits(std::size_t num)
{
    int bits = 4;
    while ((std::size_t{1} << bits) * 2 < num * 3) { ++bits; }
    return bits;
}

}  // namespace

BpeTables::BpeTables(BpeDefinition definition) : definition_(std::move(definition))
{
    VALIDATE(definition_.tokens.size() <= static_cast<std::size_t>(max_id) + 1, FormatError,
             "the highest id {} is too high for a byte-level bpe (at most {})", definition_.tokens.size() - 1, max_id);
    VALIDATE(definition_.merges.size() < no_rank, FormatError, "{} merges are too many (at most {})",
             definition_.merges.size(), no_rank - 1);
    for (const std::int64_t id : definition_.byte_ids) { has_all_bytes_ = has_all_bytes_ && id >= 0; }
    for (std::size_t byte = 0; byte < 256; ++byte)
    {
        byte_ids_[byte] = static_cast<std::int32_t>(definition_.byte_ids[byte]);
        is_spelled_ =
            is_spelled_ && (byte_ids_[byte] < 0 || definition_.tokens[static_cast<std::size_t>(byte_ids_[byte])] ==
                                                       std::string(1, static_cast<char>(byte)));
    }
    by_rank_ = definition_.by_rank;
    add_tokens();
    if (definition_.by_rank) { add_ranked_merges(); }
    else { add_listed_merges(); }
    add_byte_pairs();
    add_lowest_ranks();
}

void BpeTables::add_byte_pairs()
{
    byte_pairs_.assign(65536, no_rank);
    for (std::size_t i = 0; i < 65536; ++i)
    {
        const std::int64_t left = definition_.byte_ids[i >> 8];
        const std::int64_t right = definition_.byte_ids[i & 255];
        if (left < 0 || right < 0) { continue; }
        byte_pairs_[i] = pair_rank(static_cast<std::uint32_t>(left), static_cast<std::uint32_t>(right));
    }
}

void BpeTables::add_lowest_ranks()
{
    lowest_before_.assign(65536, no_rank);
    lowest_behind_.assign(65536, no_rank);
    // A vocabulary whose merges do not make what their parts spell says nothing about what stands beside a byte.
    if (!is_spelled_)
    {
        std::fill(lowest_before_.begin(), lowest_before_.end(), 0);
        std::fill(lowest_behind_.begin(), lowest_behind_.end(), 0);
        return;
    }
    const auto lower = [](std::uint32_t& lowest, std::uint32_t rank) { lowest = std::min(lowest, rank); };
    std::vector<std::int32_t> byte_of(definition_.tokens.size(), -1);
    for (std::size_t byte = 0; byte < 256; ++byte)
    {
        if (byte_ids_[byte] >= 0)
        {
            byte_of[static_cast<std::size_t>(byte_ids_[byte])] = static_cast<std::int32_t>(byte);
        }
    }
    for (std::uint64_t slot = 0; slot <= pair_mask_; ++slot)
    {
        const std::size_t left = pairs_[slot] >> 43;
        const std::size_t right = pairs_[slot] >> 22 & max_id;
        // Of a token that no text spells nothing comes of text.
        if (pairs_[slot] == empty_pair || definition_.tokens[left].empty() || definition_.tokens[right].empty())
        {
            continue;
        }
        const auto rank = static_cast<std::uint32_t>(pairs_[slot]) & no_rank;
        const auto last = static_cast<std::size_t>(static_cast<unsigned char>(definition_.tokens[left].back()));
        const auto first = static_cast<std::size_t>(static_cast<unsigned char>(definition_.tokens[right].front()));
        if (byte_of[right] >= 0) { lower(lowest_before_[last << 8 | static_cast<std::size_t>(byte_of[right])], rank); }
        if (byte_of[left] >= 0) { lower(lowest_behind_[static_cast<std::size_t>(byte_of[left]) << 8 | first], rank); }
    }
}

void BpeTables::add_tokens()
{
    const int bits = table_bits(definition_.tokens.size());
    whole_shift_ = 64 - bits;
    whole_mask_ = (std::uint64_t{1} << bits) - 1;
    whole_ = HugeArray<WholeEntry>(whole_mask_ + 1);
    for (std::size_t id = 0; id < definition_.tokens.size(); ++id)
    {
        const std::string& token = definition_.tokens[id];
        if (token.empty()) { continue; }
        const std::uint64_t hash = hash_piece(token);
        std::uint64_t slot = hash >> whole_shift_;
        while (whole_[slot].id_plus_one != 0) { slot = (slot + 1) & whole_mask_; }
        whole_[slot] = {static_cast<std::uint32_t>(hash), static_cast<std::uint32_t>(id) + 1};
    }
}

void BpeTables::size_pairs(std::size_t num)
{
    // Emptier than the others: most pairs that are asked for are not there, which the first empty place tells.
    const int bits = table_bits(num) + 1;
    pair_shift_ = 64 - bits;
    pair_mask_ = (std::uint64_t{1} << bits) - 1;
    pairs_ = HugeArray<std::uint64_t>(pair_mask_ + 1);
    for (std::uint64_t slot = 0; slot <= pair_mask_; ++slot) { pairs_[slot] = empty_pair; }
}

// A pair that is listed twice counts with its later rank, as in HF.
void BpeTables::add_pair(std::uint32_t left, std::uint32_t right, std::uint32_t rank)
{
    const std::uint64_t key = pair_key(left, right);
    std::uint64_t slot = (key * pair_factor) >> pair_shift_;
    while (pairs_[slot] != empty_pair && pairs_[slot] >> 22 != key) { slot = (slot + 1) & pair_mask_; }
    pairs_[slot] = key << 22 | rank;
}

void BpeTables::add_listed_merges()
{
    num_ranks_ = static_cast<std::int64_t>(definition_.merges.size());
    size_pairs(definition_.merges.size());
    merged_.reserve(definition_.merges.size());
    std::uint32_t rank = 0;
    for (const TokenizerMerge& merge : definition_.merges)
    {
        add_pair(merge.left, merge.right, rank++);
        merged_.push_back(merge.merged);
        const std::string& left = definition_.tokens[merge.left];
        const std::string& right = definition_.tokens[merge.right];
        const std::string& both = definition_.tokens[merge.merged];
        const bool is_spelled =
            both.size() == left.size() + right.size() && both.starts_with(left) && both.ends_with(right);
        is_spelled_ = is_spelled_ && (left.empty() || right.empty() || is_spelled);
    }
    definition_.merges = {};
}

// Every cut of a token into two tokens.
void BpeTables::add_ranked_merges()
{
    num_ranks_ = static_cast<std::int64_t>(definition_.tokens.size());
    std::vector<TokenizerMerge> merges;
    merges.reserve(definition_.tokens.size() * 3);
    for (std::size_t id = 0; id < definition_.tokens.size(); ++id)
    {
        const std::string_view token = definition_.tokens[id];
        for (std::size_t cut = 1; cut < token.size(); ++cut)
        {
            const std::string_view left = token.substr(0, cut);
            const std::int64_t left_id = find_token(left, hash_piece(left));
            if (left_id < 0) { continue; }
            const std::string_view right = token.substr(cut);
            const std::int64_t right_id = find_token(right, hash_piece(right));
            if (right_id < 0) { continue; }
            merges.push_back({static_cast<std::uint32_t>(left_id), static_cast<std::uint32_t>(right_id),
                              static_cast<std::uint32_t>(id)});
        }
    }
    size_pairs(merges.size());
    for (const TokenizerMerge& merge : merges) { add_pair(merge.left, merge.right, merge.merged); }
}

}  // namespace plimsoll
