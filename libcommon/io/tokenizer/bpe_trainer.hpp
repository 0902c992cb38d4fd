#pragma once
/// Learns the merges of a byte-level BPE from pieces and how often each was met (Sennrich, Haddow, Birch, ACL 2016).
///
/// Ids: special tokens first, then the 256 bytes in the order of the characters that stand for them in a tokenizer.json
/// (0x21-7E, A1-AC, AE-FF, then the rest), then what is learned, in order. The next merge is the pair that is met most often;
/// of equally frequent ones the pair with the lower left id, then the lower right id. A pair whose text is a token already
/// (learned by another way, or a special one) leads to that token and takes no id. These are the rules of HF
/// `tokenizers` 0.23, whose merges and ids come out.
///
/// Worked example: roses are red, voilets are blue (counts: are 2, is 2, others 1) with a minimum of 2: "r"+"e" (4 times)
/// before "a"+"re" (2) before "i"+"s" (2).
///
/// Memory: 4 bytes for each byte of the distinct pieces, 4 for each place of a pair in a piece, 16 for each pair ever seen.

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "io/tokenizer/piece_counts.hpp"

namespace plimsoll
{

struct BpeTrainerOptions
{
    std::int64_t vocab = 32768;               ///< ids at most, specials and bytes included
    std::vector<std::string> special_tokens;  ///< in the order of their ids
    std::int64_t min_frequency = 0;           ///< a pair that is met less often is no token
};

struct LearnedBpe
{
    std::vector<std::string> tokens;                              ///< of each id, as a tokenizer.json writes it
    std::vector<std::pair<std::uint32_t, std::uint32_t>> merges;  ///< in order of rank
    std::vector<std::string> special_tokens;
    std::int64_t last_frequency = 0;  ///< of the last merge
};

/// Told how many ids there are now; may throw to stop.
using BpeTrainerObserver = std::function<void(std::int64_t ids)>;

/// @throws UsageError when the vocabulary is too small for specials and bytes, or a special token is there twice or is one byte
void check_bpe_options(const BpeTrainerOptions& options);

/// @throws as check_bpe_options()
LearnedBpe learn_bpe(const PieceCounts& counts, const BpeTrainerOptions& options,
                     const BpeTrainerObserver& observer = {});

/// The character, in UTF-8, that stands for a byte in the tokens of a tokenizer.json, as GPT-2 chose them.
std::string byte_character(std::uint8_t byte);

}  // namespace plimsoll
