#pragma once
/// The usual cases of PieceScanner many bytes at a time: a window of 64 bytes becomes one bit mask per class of characters, and shifts and
/// carries of these masks give the places where pieces begin. Exact for what it answers; it says so where it cannot know.

#include <cstdint>

#include "io/tokenizer/split_rules.hpp"
#include "io/tokenizer/unicode.hpp"

namespace plimsoll
{

/// One bit per byte; a character of several bytes has its class at each of them.
struct WindowMasks
{
    std::uint64_t lower = 0;
    std::uint64_t upper = 0;
    std::uint64_t letter = 0;  ///< Lm, Lo
    std::uint64_t mark = 0;
    std::uint64_t number = 0;
    std::uint64_t blank = 0;  ///< class_space
    std::uint64_t newline = 0;
    std::uint64_t space = 0;  ///< 0x20
    std::uint64_t apostrophe = 0;
    std::uint64_t slash = 0;
    std::uint64_t non_ascii = 0;
    std::uint64_t inner = 0;  ///< bytes of a character behind its first
    bool has_han = false;
    int valid = 64;  ///< whole characters
};

class PieceWindow
{
  public:
    static constexpr std::ptrdiff_t bytes = 64;
    /// How many bytes behind a window must be there to be read.
    static constexpr std::ptrdiff_t slack = 16;

    explicit PieceWindow(const SplitRules& rules, bool with_avx2 = knows_avx2())
        : rules_(rules),
          tables_(UnicodeTables::get()),
          has_avx2_(with_avx2)
    {
    }

    /// Places above 0 where pieces begin, as bits, up to the last of which the answer is sure; 0: none is sure. A piece begins at
    /// `at`. @pre bytes + slack can be read
    std::uint64_t find(const char* at) const;

    /// Whether this processor has what the faster of the two ways needs.
    static bool knows_avx2();

    static bool is_available()
    {
#if defined(__SSE2__)
        return true;
#else
        return false;
#endif
    }

  private:
    static void classify(const char* at, WindowMasks& m);
    static void classify_avx2(const char* at, WindowMasks& m);
    void classify_wide(const char* at, WindowMasks& m) const;
    std::uint64_t boundaries(const char* at, const WindowMasks& m) const;
    std::uint64_t number_groups(std::uint64_t number, const WindowMasks& m) const;
    std::uint64_t apply_contractions(const char* at, std::uint64_t candidates, std::uint64_t starts) const;

    SplitRules rules_;
    const UnicodeTables& tables_;
    bool has_avx2_;
};

/// Bits of whole characters whose first byte is in `first`.
inline std::uint64_t extend_characters(std::uint64_t first, std::uint64_t inner)
{
    first |= first << 1 & inner;
    first |= first << 1 & inner;
    return first | (first << 1 & inner);
}

/// The first byte of each character that has its last byte in `last`.
inline std::uint64_t first_bytes(std::uint64_t last, std::uint64_t inner)
{
    for (int i = 0; i < 3; ++i) { last = (last & ~inner) | (last & inner) >> 1; }
    return last;
}

}  // namespace plimsoll
