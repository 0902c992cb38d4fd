#pragma once
/// Finds added tokens in text as HF `tokenizers` does: leftmost, of these the longest, through a trie, so that thousands of them cost no more
/// than one. Immutable; any thread may call.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/tokenizer/tokenizer.hpp"
#include "io/tokenizer/tokenizer_json.hpp"

namespace plimsoll
{

/// A part of a text: an added token, or text between them.
struct AddedPart
{
    std::string_view text;
    std::int64_t id = -1;  ///< -1: text
};

class AddedTokenMatcher
{
  public:
    AddedTokenMatcher() = default;
    /// Texts without content are never found; of equal contents the last counts.
    explicit AddedTokenMatcher(std::vector<AddedToken> tokens);

    bool empty() const { return tokens_.empty(); }

    /// Cuts `text` into parts, appended to `parts`. Under SpecialInText::text the text of a special token stays text (nothing else is
    /// found inside it). Returns how many special tokens' texts were found.
    /// @throws FormatError that names the first, under SpecialInText::error
    std::int64_t split(std::string_view text, SpecialInText special_in_text, std::vector<AddedPart>& parts) const;

  private:
    struct Match
    {
        const char* begin;
        std::size_t bytes;
        std::uint32_t token;
    };
    static constexpr std::uint32_t none = 0xFFFFFFFFU;

    bool find(const char* from, const char* end, Match& match) const;
    const char* find_first_byte(const char* from, const char* end) const;
    std::uint32_t child(std::uint32_t node, unsigned char byte) const;
    std::uint32_t add_child(std::uint32_t node, unsigned char byte);

    std::vector<AddedToken> tokens_;
    std::array<std::uint32_t, 256> roots_{};  ///< node behind each first byte
    int only_first_ = -1;                     ///< where all begin with the same byte
    std::vector<std::uint32_t> token_of_;     ///< of a node
    std::vector<std::uint64_t> keys_;         ///< node << 8 | byte, open addressing; ~0 empty
    std::vector<std::uint32_t> children_;
    std::uint64_t mask_ = 0;
};

}  // namespace plimsoll
