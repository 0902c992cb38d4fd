#include "io/pack_plan.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"

namespace plimsoll
{

namespace
{

struct LongPiece
{
    std::int64_t begin;
    std::uint32_t length;
    bool ends_document;
};

std::vector<LongPiece> cut_documents(std::int64_t seq_len, const PackPlan::Lengths& lengths)
{
    std::vector<LongPiece> pieces;
    std::int64_t begin = 0;
    lengths(
        [&](std::int64_t num)
        {
            // A rest of one token is the last of the piece before: it is predicted there.
            for (std::int64_t at = 0; num - at > 1; at += seq_len)
            {
                const std::int64_t length = std::min(seq_len + 1, num - at);
                pieces.push_back({begin + at, static_cast<std::uint32_t>(length), at + length == num});
            }
            begin += num;
        });
    return pieces;
}

/// Samples by the room that they have left; of those with the same room, the one put in last comes first.
class OpenSamples
{
  public:
    /// The fullest one with room for `length`, taken out; -1: none.
    std::int64_t take(std::int64_t length, std::int64_t& room)
    {
        const auto found = by_room_.lower_bound(length);
        if (found == by_room_.end()) { return -1; }
        room = found->first;
        const std::int64_t sample = found->second.back();
        found->second.pop_back();
        if (found->second.empty()) { by_room_.erase(found); }
        return sample;
    }

    void put(std::int64_t sample, std::int64_t room)
    {
        if (room >= 2) { by_room_[room].push_back(sample); }  // no piece is shorter
    }

  private:
    std::map<std::int64_t, std::vector<std::int64_t>> by_room_;
};

}  // namespace

PackPlan::PackPlan(std::int64_t seq_len, const Lengths& lengths)
{
    EXPECT(seq_len > 0 && seq_len < (std::int64_t{1} << 31));
    std::vector<LongPiece> pieces = cut_documents(seq_len, lengths);
    std::sort(pieces.begin(), pieces.end(),
              [](const LongPiece& a, const LongPiece& b)
              { return a.length != b.length ? a.length > b.length : a.begin < b.begin; });
    OpenSamples open;
    std::vector<std::int64_t> sample_of(pieces.size());
    starts_.push_back(0);
    for (std::size_t i = 0; i < pieces.size(); ++i)
    {
        std::int64_t room = seq_len + 1;
        std::int64_t sample = open.take(pieces[i].length, room);
        if (sample < 0)
        {
            sample = num_samples();
            starts_.push_back(0);
        }
        sample_of[i] = sample;
        ++starts_[static_cast<std::size_t>(sample) + 1];
        open.put(sample, room - pieces[i].length);
        num_labels_ += pieces[i].length - 1;
    }
    for (std::size_t s = 1; s < starts_.size(); ++s) { starts_[s] += starts_[s - 1]; }
    kept_.resize(pieces.size());
    for (std::size_t i = pieces.size(); i-- > 0;)
    {
        // Filled from behind; afterwards starts_[s + 1] is where sample s begins.
        Kept& kept = kept_[static_cast<std::size_t>(--starts_[static_cast<std::size_t>(sample_of[i]) + 1])];
        kept.begin_low = static_cast<std::uint32_t>(pieces[i].begin);
        kept.begin_high_and_end =
            static_cast<std::uint32_t>(pieces[i].begin >> 32) | (pieces[i].ends_document ? 0x80000000U : 0U);
        kept.length = pieces[i].length;
    }
    starts_.erase(starts_.begin());
    starts_.push_back(static_cast<std::int64_t>(kept_.size()));
}

std::vector<PackPiece> PackPlan::pieces(std::int64_t sample) const
{
    EXPECT(sample >= 0 && sample < num_samples());
    std::vector<PackPiece> all;
    for (std::int64_t i = starts_[static_cast<std::size_t>(sample)]; i < starts_[static_cast<std::size_t>(sample) + 1];
         ++i)
    {
        const Kept& kept = kept_[static_cast<std::size_t>(i)];
        PackPiece piece;
        piece.begin =
            static_cast<std::int64_t>((std::uint64_t{kept.begin_high_and_end & 0x7fffffffU} << 32) | kept.begin_low);
        piece.length = kept.length;
        piece.ends_document = (kept.begin_high_and_end >> 31) != 0;
        all.push_back(piece);
    }
    return all;
}

}  // namespace plimsoll
