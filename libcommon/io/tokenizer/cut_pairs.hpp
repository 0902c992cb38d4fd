#pragma once
/// Where a text may be cut without changing its ids: between two characters that stand side by side in no token. No token can
/// then reach across, so that merges (or paths of a lattice) on the two sides know nothing of each other.

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <string_view>
#include <vector>

#include "io/tokenizer/utf8_step.hpp"

namespace plimsoll
{

/// A set of pairs of characters that never forgets one; now and then it takes a stranger for a member, which costs a cut
/// and no more. Pairs of ASCII and of ASCII with U+2581 are kept exactly, the rest hashed.
class CutPairs
{
  public:
    /// All pairs of neighbours in the tokens.
    explicit CutPairs(const std::vector<std::string_view>& tokens = {})
    {
        std::vector<std::uint64_t> others;
        for (const std::string_view token : tokens)
        {
            std::uint32_t left = 0;
            for (std::size_t at = 0; at < token.size();)
            {
                const Utf8Step step = utf8_step(token, at);
                if (at > 0) { add(left, step.code_point, others); }
                left = step.code_point;
                at += step.bytes;
            }
        }
        std::sort(others.begin(), others.end());
        others.erase(std::unique(others.begin(), others.end()), others.end());
        // 32 bits for each pair: 3 % strangers.
        const std::size_t bits = std::bit_ceil(std::max<std::size_t>(others.size() * 32, 1U << 10));
        hashed_.resize(bits / 64);
        shift_ = 64U - static_cast<unsigned>(std::bit_width(bits) - 1);
        for (const std::uint64_t pair : others)
        {
            const std::uint64_t bit = hash(pair);
            hashed_[bit / 64] |= std::uint64_t{1} << bit % 64;
        }
    }

    /// The first place behind `position` (< text.size()) where the text may be cut; its end at the latest.
    std::size_t next_cut(std::string_view text, std::size_t position) const
    {
        const Utf8Step first = is_space(text, position) ? Utf8Step{space, 3, true} : utf8_step(text, position);
        std::uint32_t left = first.code_point;
        position += first.bytes;
        while (position < text.size())
        {
            const auto byte = static_cast<unsigned char>(text[position]);
            if (byte < 0x80 && (left < 0x80 || left == space))
            {
                if (!(left == space ? after_space_[byte] : ascii_[left * 128 + byte])) { break; }
                left = byte;
                ++position;
                continue;
            }
            if (left < 0x80 && is_space(text, position))
            {
                if (!before_space_[left]) { break; }
                left = space;
                position += 3;
                continue;
            }
            const Utf8Step step = utf8_step(text, position);
            if (!may_join(left, step.code_point)) { break; }
            left = step.code_point;
            position += step.bytes;
        }
        return position;
    }

  private:
    static constexpr std::uint32_t space = 0x2581;

    static bool is_space(std::string_view text, std::size_t at)
    {
        return text.size() - at >= 3 && text[at] == '\xE2' && text[at + 1] == '\x96' && text[at + 2] == '\x81';
    }

    void add(std::uint32_t left, std::uint32_t right, std::vector<std::uint64_t>& others)
    {
        if ((left | right) < 128) { ascii_[left * 128 + right] = 1; }
        else if (left < 128 && right == space) { before_space_[left] = 1; }
        else if (left == space && right < 128) { after_space_[right] = 1; }
        else { others.push_back(std::uint64_t{left} << 21 | right); }
    }

    bool may_join(std::uint32_t left, std::uint32_t right) const
    {
        const std::uint64_t bit = hash(std::uint64_t{left} << 21 | right);
        return (hashed_[bit / 64] >> bit % 64 & 1U) != 0;
    }
    std::uint64_t hash(std::uint64_t pair) const { return pair * 0x9E3779B97F4A7C15ULL >> shift_; }

    std::vector<std::uint8_t> ascii_ = std::vector<std::uint8_t>(std::size_t{128} * 128);
    std::array<std::uint8_t, 128> before_space_{}, after_space_{};
    std::vector<std::uint64_t> hashed_;
    unsigned shift_ = 0;
};

}  // namespace plimsoll
