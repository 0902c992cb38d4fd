#pragma once
/// Cuts text into the pieces that a pattern family's regex would match, one after another, in linear time. Plain code for every
/// case; piece_window.hpp does the usual ones many bytes at a time.

#include "io/tokenizer/split_rules.hpp"
#include "io/tokenizer/unicode.hpp"

namespace plimsoll
{

class PieceScanner
{
  public:
    explicit PieceScanner(const SplitRules& rules);
    /// End of the piece that begins at `at`. The text is [at, end), well-formed UTF-8; what stands before does not matter.
    /// @pre at < end
    const char* next(const char* at, const char* end) const;
    const SplitRules& rules() const { return rules_; }

  private:
    const char* word(const char* at, const char* end, std::uint8_t first) const;
    const char* cased_word(const char* at, const char* end, std::uint8_t first) const;
    const char* cased_run(const char* at, const char* end, bool with_lower) const;
    const char* numbers(const char* at, const char* end, ClassSet first) const;
    const char* punctuation(const char* at, const char* end) const;
    const char* blank(const char* at, const char* end) const;
    /// Bytes of the contraction at `at`, 0 without one.
    std::ptrdiff_t contraction(const char* at, const char* end) const;
    bool is_cased(std::uint8_t properties, ClassSet set) const;

    SplitRules rules_;
    const UnicodeTables& tables_;
    ClassSet letters_;
    ClassSet punct_;
};

/// The three patterns of DeepSeek-V3. Of one text at a time: it remembers how far the stretch between numbers and Chinese or Japanese
/// characters reaches.
class DeepseekScanner
{
  public:
    DeepseekScanner() : tables_(UnicodeTables::get()) {}
    void start() { stretch_end_ = nullptr; }
    /// As PieceScanner::next(); calls go from left to right through one text after start().
    const char* next(const char* at, const char* end);

  private:
    const char* match(const char* at, const char* end) const;

    const UnicodeTables& tables_;
    const char* stretch_end_ = nullptr;
};

/// End of the contraction's letters after an apostrophe at `at` (letters in any case, long s), or `at` itself.
const char* match_contraction(const char* at, const char* end, bool caseless);

}  // namespace plimsoll
