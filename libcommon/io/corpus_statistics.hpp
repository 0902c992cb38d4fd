#pragma once
/// What a run counts, in memory that does not grow: sums over blocks, saved with the journal.

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

#include "io/document_filter.hpp"

namespace plimsoll
{

/// Lengths of documents in tokens, each rounded down to one of 32 steps per octave (3 %, exact below 64).
class LengthHistogram
{
  public:
    void add(std::int64_t length) { ++counts_[rounded(length)]; }
    void add(const LengthHistogram& other)
    {
        for (const auto& entry : other.counts_) { counts_[entry.first] += entry.second; }
    }
    /// The least length that at least this share of the documents does not exceed, rounded; 0 without documents.
    std::int64_t quantile(double share) const;
    const std::map<std::int64_t, std::int64_t>& counts() const { return counts_; }
    void set(std::int64_t length, std::int64_t count) { counts_[length] = count; }
    static std::int64_t rounded(std::int64_t length);

  private:
    std::map<std::int64_t, std::int64_t> counts_;
};

struct CorpusCounts
{
    std::int64_t documents = 0;   ///< found, empty and unlabelled ones included
    std::int64_t empty = 0;       ///< not written
    std::int64_t unlabelled = 0;  ///< not written: no token counts in the loss
    DropCounts dropped;           ///< not written: a filter's choice
    std::int64_t bad = 0;
    std::int64_t invalid_utf8 = 0;
    std::int64_t lone_surrogates = 0;
    std::int64_t special_in_text = 0;
    std::int64_t unknown = 0;
    std::int64_t byte_fallback = 0;
    std::int64_t longest = 0;     ///< tokens of one document, with its end
    std::int64_t bytes = 0;       ///< of the input files
    std::int64_t text_bytes = 0;  ///< of the input after decompression

    void add(const CorpusCounts& other)
    {
        documents += other.documents;
        empty += other.empty;
        unlabelled += other.unlabelled;
        dropped.add(other.dropped);
        bad += other.bad;
        invalid_utf8 += other.invalid_utf8;
        lone_surrogates += other.lone_surrogates;
        special_in_text += other.special_in_text;
        unknown += other.unknown;
        byte_fallback += other.byte_fallback;
        longest = std::max(longest, other.longest);
        bytes += other.bytes;
        text_bytes += other.text_bytes;
    }
};

/// Every member with its name, for files and reports.
template<class Counts, class Visit>
void for_each_count(Counts& counts, const Visit& visit)
{
    visit("documents", counts.documents);
    visit("empty", counts.empty);
    visit("unlabelled", counts.unlabelled);
    for (int i = 1; i < num_drop_reasons; ++i)
    {
        const std::string name = std::string("dropped-by-") + drop_reason_name(static_cast<DropReason>(i));
        visit(name.c_str(), counts.dropped.by_reason[static_cast<std::size_t>(i)]);
    }
    visit("bad", counts.bad);
    visit("invalid_utf8", counts.invalid_utf8);
    visit("lone_surrogates", counts.lone_surrogates);
    visit("special_in_text", counts.special_in_text);
    visit("unknown", counts.unknown);
    visit("byte_fallback", counts.byte_fallback);
    visit("longest_document_tokens", counts.longest);
    visit("bytes", counts.bytes);
    visit("text_bytes", counts.text_bytes);
}

}  // namespace plimsoll
