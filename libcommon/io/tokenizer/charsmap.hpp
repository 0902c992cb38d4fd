#pragma once
/// The rewriting rules of sentencepiece (`precompiled_charsmap`): a Darts double-array trie of byte strings and what each is
/// replaced by. Layout: u32 bytes of the trie, the trie as u32 units, replacements that end at NUL.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll
{

class Charsmap
{
  public:
    Charsmap() = default;
    /// Empty: no rules. @throws FormatError for sizes that do not fit
    explicit Charsmap(std::string_view blob);

    bool empty() const { return units_.empty(); }

    struct Match
    {
        std::size_t length = 0;  ///< 0: no rule
        std::string_view replacement;
    };
    /// Of the rules that `text` starts with from `position` on, the longest. Units that lead nowhere (a broken file) match
    /// nothing.
    Match longest(std::string_view text, std::size_t position) const;
    /// The shortest one.
    Match shortest(std::string_view text, std::size_t position) const;
    /// Does any rule start with this byte and have only it, or go on with a byte below 0x80?
    bool touches_ascii(unsigned char byte) const;

  private:
    std::string_view replacement(std::uint32_t value) const;
    /// Calls found(length, value) for each rule that the text starts with, shorter ones first, until it returns false.
    template<class Found>
    void walk(std::string_view text, std::size_t position, Found&& found) const;

    std::vector<std::uint32_t> units_;
    std::string replacements_;
};

}  // namespace plimsoll
