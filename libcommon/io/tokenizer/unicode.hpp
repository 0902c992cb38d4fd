#pragma once
/// Classes of characters as the split patterns of tokenizers know them, from own tables, so that ids never depend on a library's
/// Unicode version. Any thread may call; the tables are made at the first use.

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace plimsoll
{

/// Each character has one. Sets of them are written as bits: 1 << class.
enum CharClass : std::uint8_t
{
    class_other = 0,    ///< control, format, unassigned, private
    class_lower = 1,    ///< Ll
    class_upper = 2,    ///< Lu, Lt
    class_letter = 3,   ///< Lm, Lo
    class_mark = 4,     ///< M
    class_number = 5,   ///< N
    class_punct = 6,    ///< P
    class_symbol = 7,   ///< S
    class_space = 8,    ///< White_Space but CR and LF
    class_newline = 9,  ///< CR and LF
};

using ClassSet = std::uint32_t;
constexpr ClassSet one_class(CharClass c) { return 1U << c; }
constexpr ClassSet letter_set = one_class(class_lower) | one_class(class_upper) | one_class(class_letter);
constexpr ClassSet mark_set = one_class(class_mark);
constexpr ClassSet number_set = one_class(class_number);
constexpr ClassSet newline_set = one_class(class_newline);
constexpr ClassSet space_set = one_class(class_space) | newline_set;  ///< \s
constexpr ClassSet punct_symbol_set = one_class(class_punct) | one_class(class_symbol);
constexpr ClassSet all_set = (1U << 10) - 1;
constexpr ClassSet not_space_letter_number = all_set & ~(space_set | letter_set | number_set);

/// Properties of a code point: class in the low 4 bits, then flags.
constexpr std::uint8_t property_han = 0x10;
constexpr std::uint8_t property_word = 0x20;  ///< \w

/// Two stages of 128 code points; what text holds of it fits a core's first cache.
class UnicodeTables
{
  public:
    static const UnicodeTables& get();
    std::uint8_t properties(std::uint32_t code_point) const
    {
        return blocks_[(static_cast<std::size_t>(index_[code_point >> 7]) << 7) | (code_point & 127)];
    }
    CharClass char_class(std::uint32_t code_point) const { return static_cast<CharClass>(properties(code_point) & 15); }

  private:
    UnicodeTables();
    std::array<std::uint16_t, (0x110000 >> 7)> index_{};
    std::vector<std::uint8_t> blocks_;
};

/// "16.0.0"
std::string_view unicode_version();

struct CodePoint
{
    std::uint32_t value;
    std::uint32_t bytes;
};

/// First character. @pre at < end, well-formed UTF-8
inline CodePoint decode_utf8(const char* at)
{
    const auto* p = reinterpret_cast<const unsigned char*>(at);
    if (p[0] < 0x80) { return {p[0], 1}; }
    if (p[0] < 0xE0) { return {(p[0] & 31U) << 6 | (p[1] & 63U), 2}; }
    if (p[0] < 0xF0) { return {(p[0] & 15U) << 12 | (p[1] & 63U) << 6 | (p[2] & 63U), 3}; }
    return {(p[0] & 7U) << 18 | (p[1] & 63U) << 12 | (p[2] & 63U) << 6 | (p[3] & 63U), 4};
}

/// Start of the character that ends before `at`. @pre at is behind a character's start
inline const char* previous_utf8(const char* at)
{
    do {
        --at;
    } while ((static_cast<unsigned char>(*at) & 0xC0) == 0x80);
    return at;
}

}  // namespace plimsoll
