#pragma once
/// One thread's way from text to ids through a byte-level BPE: added tokens, normalization, pieces, cache, merges.

#include <array>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/tokenizer/added_tokens.hpp"
#include "io/tokenizer/bpe_merger.hpp"
#include "io/tokenizer/bpe_tables.hpp"
#include "io/tokenizer/piece_cache.hpp"
#include "io/tokenizer/piece_scanner.hpp"
#include "io/tokenizer/piece_window.hpp"
#include "io/tokenizer/split_plan.hpp"
#include "io/tokenizer/tokenizer.hpp"

namespace plimsoll
{

/// All that encoding needs of a definition; the encoders read it, the tokenizer owns it.
struct ByteBpe
{
    explicit ByteBpe(BpeDefinition definition) : tables(std::move(definition)) {}
    BpeTables tables;
    SplitPlan plan;
    bool nfc = false;
    AddedTokenMatcher raw;         ///< looked for in the text as it is
    AddedTokenMatcher normalized;  ///< looked for behind normalization
    SpecialInText special_in_text = SpecialInText::text;
};

class ByteBpeEncoder final : public TokenEncoder
{
  public:
    explicit ByteBpeEncoder(const ByteBpe& bpe);
    void encode(std::string_view text, std::vector<std::uint32_t>& ids) override;

  private:
    static constexpr std::size_t out_size = 4096;
    static constexpr std::size_t queue_size = 128;

    /// A piece between being found and being looked up: in this time its cache entry comes from memory.
    struct Queued
    {
        PieceWords key;
        std::uint64_t hash;
        const char* at;
        std::size_t bytes;
    };

    /// A queued piece that the tables of pieces do not have. Those of one queue are looked up and merged together.
    struct Miss
    {
        const Queued* queued;
        std::size_t out_at;  ///< how much of out_ stands before it
        const std::uint32_t* ids;
        std::size_t num_ids;
        /// fresh: never met, or forgotten.
        enum class Source
        {
            fresh,
            set,
            store
        } source;
    };

    void split_added(const AddedTokenMatcher& matcher, std::string_view text, std::vector<AddedPart>& parts);
    void encode_normalized(std::string_view text);
    void encode_text(std::string_view text);
    void encode_pieces(std::string_view text);
    const char* encode_windows(const char* at, const char* end);
    void queue_piece(const char* at, std::size_t bytes);
    void drain_queue();
    void drain_unusual(const Queued& queued);
    bool emit_long(const Queued& queued);
    bool recall(Miss& miss, std::uint32_t* ids);
    void add_miss(const Queued& queued);
    void settle_misses();
    void resolve_misses();
    void keep(const Miss& miss);
    bool use_stored(std::string_view piece, std::uint64_t hash);
    void piece(const char* at, std::size_t bytes);
    void short_piece(const char* at, std::size_t bytes);
    void short_miss(const char* at, std::size_t bytes, PieceWords key, std::uint64_t hash, PieceCache::Short* set);
    void long_piece(const char* at, std::size_t bytes, std::uint64_t hash);
    void uncached_piece(std::string_view piece, std::uint64_t hash);
    std::size_t resolve(const char* at, std::size_t bytes, std::uint64_t hash);
    void flush();

    const ByteBpe& bpe_;
    PieceScanner scanner_;
    PieceWindow window_;
    bool has_windows_;
    DeepseekScanner deepseek_;
    std::unique_ptr<StageSplitter> stages_;
    BpeMerger merger_;
    PieceCache cache_;
    std::vector<AddedPart> raw_parts_;
    std::vector<AddedPart> normalized_parts_;
    std::string normalized_;
    std::string prefixed_;
    std::vector<std::uint32_t>* ids_ = nullptr;
    std::array<Queued, queue_size> queue_{};
    std::size_t num_queued_ = 0;
    std::array<Miss, queue_size> misses_{};
    std::size_t num_misses_ = 0;
    std::vector<BpeMerger::Job> jobs_;
    std::vector<std::uint32_t> miss_ids_;  ///< of one queue's misses
    std::size_t out_num_ = 0;
    std::vector<std::uint32_t> out_;  ///< filled before it goes to the caller's vector at once
};

}  // namespace plimsoll
