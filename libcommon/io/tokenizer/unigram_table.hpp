#pragma once
/// Unigram segmentation: the pieces whose scores sum up highest, found from left to right (Viterbi).
///
/// sentencepiece adds scores in float from the start of the text on (from 0 again whenever the sum is below -100,000), so that
/// rounding decides between nearly equal ways, and decides differently far into a text: a word's pieces are not a function of
/// the word. `Unigram::segment()` therefore takes
/// the sum so far and goes on from there; `margin` says how far ahead of every other way the result is, so that a caller who
/// knows how large rounding errors can be may use it again elsewhere.

#include <cstdint>
#include <string_view>
#include <vector>

#include "io/tokenizer/double_array.hpp"

namespace plimsoll
{

struct UnigramTable
{
    DoubleArray trie;            ///< text of a piece -> its id
    std::vector<double> scores;  ///< by id
    double unknown_score = 0;
    std::uint32_t unknown_id = 0;
    double largest_score = 0;  ///< absolute value
};

struct UnigramPiece
{
    std::uint32_t id = 0;
    std::uint32_t bytes = 0;
    bool operator==(const UnigramPiece&) const = default;
};

/// Scratch of one thread, 24 bytes for each byte of the longest stretch.
class Unigram
{
  public:
    /// Pieces of `text`, in sums of type Score from `sum` on, which becomes the sum behind the text. Of equal ways the one that
    /// was found first: with the earlier start of the last piece.
    template<class Score>
    void segment(const UnigramTable& table, std::string_view text, Score& sum, std::vector<UnigramPiece>& pieces);

    /// In double precision from 0 on. Returns the smallest lead of the result over another way, at any of its cuts.
    double segment_with_margin(const UnigramTable& table, std::string_view text, std::vector<UnigramPiece>& pieces);

  private:
    struct Node
    {
        double best = 0;
        double second = 0;
        std::uint32_t start = 0;
        std::uint32_t id = 0;
    };
    template<class Score, bool with_second>
    void run(const UnigramTable& table, std::string_view text, Score sum);
    void rebase(std::size_t start);
    void collect(std::size_t size, std::vector<UnigramPiece>& pieces) const;

    std::vector<Node> nodes_;
};

}  // namespace plimsoll
