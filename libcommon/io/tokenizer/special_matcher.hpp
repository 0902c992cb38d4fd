#pragma once
/// Texts of special tokens in documents: leftmost, of several at one place the longest.

#include <array>
#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "io/tokenizer/double_array.hpp"

namespace plimsoll
{

class SpecialMatcher
{
  public:
    SpecialMatcher() = default;
    explicit SpecialMatcher(std::vector<std::pair<std::string_view, std::int32_t>> tokens) : trie_(std::move(tokens))
    {
        for (unsigned byte = 0; byte < 256 && !trie_.empty(); ++byte)
        {
            const auto c = static_cast<unsigned char>(byte);
            starts_[byte] = trie_.step(DoubleArray::root, c) != DoubleArray::nowhere;
        }
    }

    struct Found
    {
        std::size_t position = 0;  ///< the text's size where none was found
        std::size_t length = 0;
        std::uint32_t id = 0;
    };
    Found find(std::string_view text, std::size_t position) const
    {
        if (trie_.empty()) { return {text.size(), 0, 0}; }
        for (; position < text.size(); ++position)
        {
            if (!starts_[static_cast<unsigned char>(text[position])]) { continue; }
            const DoubleArray::Match match = trie_.longest(text, position);
            if (match.length != 0) { return {position, match.length, static_cast<std::uint32_t>(match.value)}; }
        }
        return {text.size(), 0, 0};
    }

  private:
    DoubleArray trie_;
    std::array<bool, 256> starts_{};
};

}  // namespace plimsoll
