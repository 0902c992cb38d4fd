#pragma once
/// What sentencepiece models and their Hugging Face conversions have in common once the text is normalised: cut the text where
/// no token reaches across, look words up, merge or segment those that are new.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/tokenizer/cut_pairs.hpp"
#include "io/tokenizer/double_array.hpp"
#include "io/tokenizer/merge_table.hpp"
#include "io/tokenizer/tokenizer.hpp"
#include "io/tokenizer/unigram_table.hpp"
#include "io/tokenizer/word_cache.hpp"

namespace plimsoll
{

/// A symbol for each character that has one.
class CharacterSymbols
{
  public:
    CharacterSymbols() : pages_(1) { pages_[0].fill(Symbol::none); }
    void set(std::uint32_t character, std::uint32_t symbol);
    std::uint32_t find(std::uint32_t character) const { return pages_[page_of_[character >> 8]][character & 0xFF]; }

  private:
    std::array<std::uint16_t, 0x1100> page_of_{};
    std::vector<std::array<std::uint32_t, 256>> pages_;
};

/// Immutable while encoders use it.
struct SubwordModel
{
    enum class Kind
    {
        bpe,
        unigram,
        word,  ///< a word begins with U+2581
        character,
    };
    static constexpr std::uint32_t no_id = UINT32_MAX;

    Kind kind = Kind::bpe;
    bool can_cut = true;
    CutPairs cuts;

    // bpe and character. A symbol is an index of `ids`.
    std::vector<std::uint32_t> ids;  ///< no_id: unknown on its own
    CharacterSymbols characters;
    DoubleArray frozen;  ///< text -> symbol that never merges, longest first
    MergeTable merges;
    std::vector<bool> unused;                 ///< by symbol: appears as the two it was made of; empty: none is
    std::vector<std::uint32_t> symbol_bytes;  ///< length of a symbol's text; with `unused`

    // unigram
    UnigramTable unigram;
    bool double_sums = false;

    // word
    std::unordered_map<std::string, std::uint32_t> words;

    // What becomes of unknown characters.
    std::uint32_t unknown_id = no_id;  ///< no_id: they vanish
    bool fuse_unknown = true;          ///< neighbours are one token
    bool byte_fallback = false;
    bool bytes_merge = false;  ///< the tokens of bytes take part in merging
    std::array<std::uint32_t, 256> byte_ids{};
};

/// One thread's way through a model. 4 MiB of cache and scratch of about 40 bytes for each byte of the longest stretch that
/// cannot be cut.
class SubwordEncoder
{
  public:
    explicit SubwordEncoder(const SubwordModel& model);

    /// Appends the ids of `text`, which is normalised and stands by itself.
    void encode(std::string_view text, std::vector<std::uint32_t>& ids, EncodeCounts& counts);

  private:
    struct Found
    {
        std::uint32_t unknown = 0;
        std::uint32_t bytes = 0;
    };
    void encode_word(std::string_view word, std::vector<std::uint32_t>& ids, EncodeCounts& counts);
    void append_word(const std::uint32_t* ids, std::size_t num, const Found& found, std::vector<std::uint32_t>& out,
                     EncodeCounts& counts);
    bool use_cached(const WordCache::Entry& entry);
    void keep(WordCache::Entry& entry, std::string_view word, const Found& found, double margin);
    /// Ids of a word into word_ids_; the margin of its segmentation (infinite without one).
    double compute(std::string_view word, Found& found);
    void compute_bpe(std::string_view word, Found& found);
    void start_symbols(std::string_view word);
    double compute_unigram(std::string_view word, Found& found);
    bool beats_rounding(double margin, std::size_t bytes) const;
    void emit_symbol(std::uint32_t symbol, std::string_view text, Found& found);
    void emit_unused(std::uint32_t symbol, std::string_view text, Found& found);
    void emit_unknown(std::string_view text, Found& found);

    const SubwordModel& model_;
    WordCache cache_;
    std::vector<float> margins_;  ///< of the cache's entries, unigram only
    Merger merger_;
    Unigram unigram_;
    std::vector<Symbol> symbols_;
    std::vector<UnigramPiece> pieces_, exact_pieces_;
    std::vector<std::uint32_t> word_ids_;
    struct Split
    {
        std::uint32_t left = 0;
        std::uint32_t right = 0;
    };
    std::unordered_map<std::uint32_t, Split> splits_;  ///< of unused symbols, the last one seen
    float float_sum_ = 0;
    double double_sum_ = 0;
    bool previous_unknown_ = false;
};

}  // namespace plimsoll
