#pragma once
/// Best-fit packing: pieces of documents put together so that a sample of L + 1 tokens is nearly full and no document is cut that fits
/// (Ding et al., ICML 2024). A plan is a function of the documents' lengths and L alone: docs/data_order.md.

#include <cstdint>
#include <functional>
#include <vector>

namespace plimsoll
{

/// Part of a document, in tokens of its source.
struct PackPiece
{
    std::int64_t begin = 0;
    std::int64_t length = 0;
    bool ends_document = false;
};

/// A document of n tokens is cut into pieces [i L, i L + L + 1), which share a token, so that each token but a document's first is
/// predicted once. Longest first, each goes into the fullest sample that has room, else begins one.
/// Memory: 12 bytes for each piece and 8 for each sample; 28 bytes for each piece while it is made. Immutable.
class PackPlan
{
  public:
    /// Calls take(n) with the length of each document of the source in its order.
    using Lengths = std::function<void(const std::function<void(std::int64_t)>& take)>;

    PackPlan(std::int64_t seq_len, const Lengths& lengths);

    std::int64_t num_samples() const { return static_cast<std::int64_t>(starts_.size()) - 1; }
    /// Of sample `sample`, in their order there.
    std::vector<PackPiece> pieces(std::int64_t sample) const;
    std::int64_t num_labels() const { return num_labels_; }  ///< in all samples

  private:
    struct Kept
    {
        std::uint32_t begin_low = 0;
        std::uint32_t begin_high_and_end = 0;  ///< 31 bits of begin, the top bit: ends its document
        std::uint32_t length = 0;
    };

    std::vector<Kept> kept_;            ///< by sample
    std::vector<std::int64_t> starts_;  ///< first of each sample
    std::int64_t num_labels_ = 0;
};

}  // namespace plimsoll
