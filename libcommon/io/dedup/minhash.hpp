#pragma once
/// MinHash (Broder 1997) with banding: how alike two documents are, from a fixed number of minima, and keys that alike
/// documents probably share.

#include <cstdint>
#include <string_view>
#include <vector>

namespace plimsoll
{

/// Two documents whose sets of n-grams have the Jaccard similarity s share a key with probability 1 - (1 - s^rows)^bands:
/// with 14 bands of 8 rows 1/2 at s = 0.69, 0.06 at 0.5, 0.92 at 0.8.
struct MinhashParameters
{
    int ngram = 5;
    int bands = 14;
    int rows = 8;  ///< minima in a band
    std::uint64_t seed = 1;
};

/// Part of an exact or near-duplicate's identity: equal keys are taken for equal content.
struct DedupKey
{
    std::uint64_t high = 0;
    std::uint64_t low = 0;
};
inline bool operator==(const DedupKey& a, const DedupKey& b) { return a.high == b.high && a.low == b.low; }

/// Immutable; any thread may call.
class Minhash
{
  public:
    explicit Minhash(const MinhashParameters& parameters);

    const MinhashParameters& parameters() const { return parameters_; }

    /// Hash of each n-gram of the units (hashes of words or tokens) in their order; fewer units than n are one n-gram.
    void ngrams(const std::vector<std::uint64_t>& units, std::vector<std::uint64_t>& hashes) const;
    /// bands x rows minima. @pre at least one hash
    std::vector<std::uint32_t> signature(const std::vector<std::uint64_t>& hashes) const;
    /// A key for each band.
    std::vector<DedupKey> keys(const std::vector<std::uint32_t>& signature) const;

    /// Share of equal minima: estimates the Jaccard similarity with a standard deviation of sqrt(s (1 - s) / minima).
    static double similarity(const std::vector<std::uint32_t>& a, const std::vector<std::uint32_t>& b);

  private:
    MinhashParameters parameters_;
    std::vector<std::uint64_t> multipliers_;
    std::vector<std::uint64_t> offsets_;
};

/// Hashes of the words of a text: its runs of letters, marks and numbers.
void append_word_hashes(std::string_view text, std::vector<std::uint64_t>& hashes);
/// Hashes of tokens.
void append_token_hashes(const std::vector<std::uint32_t>& ids, std::vector<std::uint64_t>& hashes);
/// Key of a document by all its ids.
DedupKey exact_key(const std::vector<std::uint32_t>& ids);

}  // namespace plimsoll
