#include "io/tokenizer/piece_window.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "io/tokenizer/piece_scanner.hpp"

#if defined(__SSE2__)
#include <immintrin.h>
#endif

namespace plimsoll
{

#if defined(__SSE2__)

namespace
{

// Bytes from `first` to `first + num`, unsigned.
inline __m128i in_range(__m128i bytes, char first, char num)
{
    const __m128i shifted = _mm_sub_epi8(bytes, _mm_set1_epi8(first));
    return _mm_cmpeq_epi8(_mm_min_epu8(shifted, _mm_set1_epi8(num)), shifted);
}

inline std::uint64_t bits_of(__m128i mask, int part)
{
    return static_cast<std::uint64_t>(static_cast<std::uint32_t>(_mm_movemask_epi8(mask))) << (16 * part);
}

}  // namespace

inline void PieceWindow::classify(const char* at, WindowMasks& m)
{
    for (int part = 0; part < 4; ++part)
    {
        const __m128i x = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + 16 * part));
        m.lower |= bits_of(in_range(x, 'a', 25), part);
        m.upper |= bits_of(in_range(x, 'A', 25), part);
        m.number |= bits_of(in_range(x, '0', 9), part);
        m.space |= bits_of(_mm_cmpeq_epi8(x, _mm_set1_epi8(' ')), part);
        m.blank |= bits_of(in_range(x, '\t', 4), part);
        m.newline |=
            bits_of(_mm_or_si128(_mm_cmpeq_epi8(x, _mm_set1_epi8('\n')), _mm_cmpeq_epi8(x, _mm_set1_epi8('\r'))), part);
        m.apostrophe |= bits_of(_mm_cmpeq_epi8(x, _mm_set1_epi8('\'')), part);
        m.slash |= bits_of(_mm_cmpeq_epi8(x, _mm_set1_epi8('/')), part);
        m.non_ascii |= bits_of(x, part);
        m.inner |= bits_of(_mm_cmplt_epi8(x, _mm_set1_epi8('\xC0')), part);
    }
    m.blank = (m.blank | m.space) & ~m.newline;
}

namespace
{

#define PLIMSOLL_AVX2 __attribute__((target("avx2")))

PLIMSOLL_AVX2 inline __m256i in_range_32(__m256i bytes, char first, char num)
{
    const __m256i shifted = _mm256_sub_epi8(bytes, _mm256_set1_epi8(first));
    return _mm256_cmpeq_epi8(_mm256_min_epu8(shifted, _mm256_set1_epi8(num)), shifted);
}

PLIMSOLL_AVX2 inline __m256i equal_32(__m256i bytes, char c) { return _mm256_cmpeq_epi8(bytes, _mm256_set1_epi8(c)); }

// Bits of both halves of a window.
PLIMSOLL_AVX2 inline std::uint64_t bits_64(__m256i low, __m256i high)
{
    return static_cast<std::uint32_t>(_mm256_movemask_epi8(low)) |
           static_cast<std::uint64_t>(static_cast<std::uint32_t>(_mm256_movemask_epi8(high))) << 32;
}

}  // namespace

PLIMSOLL_AVX2 void PieceWindow::classify_avx2(const char* at, WindowMasks& m)
{
    const __m256i x = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
    const __m256i y = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + 32));
    m.lower = bits_64(in_range_32(x, 'a', 25), in_range_32(y, 'a', 25));
    m.upper = bits_64(in_range_32(x, 'A', 25), in_range_32(y, 'A', 25));
    m.number = bits_64(in_range_32(x, '0', 9), in_range_32(y, '0', 9));
    m.space = bits_64(equal_32(x, ' '), equal_32(y, ' '));
    m.newline = bits_64(_mm256_or_si256(equal_32(x, '\n'), equal_32(x, '\r')),
                        _mm256_or_si256(equal_32(y, '\n'), equal_32(y, '\r')));
    m.blank = (bits_64(in_range_32(x, '\t', 4), in_range_32(y, '\t', 4)) | m.space) & ~m.newline;
    m.apostrophe = bits_64(equal_32(x, '\''), equal_32(y, '\''));
    m.slash = bits_64(equal_32(x, '/'), equal_32(y, '/'));
    m.non_ascii = bits_64(x, y);
    m.inner = bits_64(_mm256_cmpgt_epi8(_mm256_set1_epi8('\xC0'), x), _mm256_cmpgt_epi8(_mm256_set1_epi8('\xC0'), y));
}

#undef PLIMSOLL_AVX2

bool PieceWindow::knows_avx2() { return __builtin_cpu_supports("avx2") != 0; }

// Properties of each character go to all of its bytes in a row of the window's shape, of which the masks are then made at once: no
// branch and no chain from one character to the next.
inline void PieceWindow::classify_wide(const char* at, WindowMasks& m) const
{
    std::uint64_t leads = m.non_ascii & ~m.inner;
    const int last = 63 - std::countl_zero(leads);
    if (last + static_cast<int>(decode_utf8(at + last).bytes) > bytes)
    {
        m.valid = last;
        leads &= ~(std::uint64_t{1} << last);
        m.inner &= (std::uint64_t{1} << last) - 1;
    }
    alignas(16) std::uint8_t row[bytes + 4];
    for (int part = 0; part < 4; ++part)
    {
        _mm_store_si128(reinterpret_cast<__m128i*>(row + 16 * part), _mm_setzero_si128());
    }
    for (; leads != 0; leads &= leads - 1)
    {
        const int place = std::countr_zero(leads);
        const std::uint32_t four = tables_.properties(decode_utf8(at + place).value) * 0x01010101U;
        std::memcpy(row + place, &four, 4);
    }
    std::uint64_t han = 0;
    WindowMasks wide;
    for (int part = 0; part < 4; ++part)
    {
        const __m128i x = _mm_load_si128(reinterpret_cast<const __m128i*>(row + 16 * part));
        const __m128i classes = _mm_and_si128(x, _mm_set1_epi8(15));
        const auto of = [&](CharClass c)
        { return bits_of(_mm_cmpeq_epi8(classes, _mm_set1_epi8(static_cast<char>(c))), part); };
        wide.lower |= of(class_lower);
        wide.upper |= of(class_upper);
        wide.letter |= of(class_letter);
        wide.mark |= of(class_mark);
        wide.number |= of(class_number);
        wide.blank |= of(class_space);
        han |= bits_of(_mm_slli_epi16(x, 3), part);
    }
    // What a short character wrote too far is ASCII's, or was written over.
    const std::uint64_t known = m.valid == bytes ? m.non_ascii : m.non_ascii & ((std::uint64_t{1} << m.valid) - 1);
    m.lower |= wide.lower & known;
    m.upper |= wide.upper & known;
    m.letter |= wide.letter & known;
    m.mark |= wide.mark & known;
    m.number |= wide.number & known;
    m.blank |= wide.blank & known;
    m.has_han = (han & known) != 0;
}

#else

void PieceWindow::classify(const char*, WindowMasks&) {}
void PieceWindow::classify_avx2(const char*, WindowMasks&) {}
bool PieceWindow::knows_avx2() { return false; }
void PieceWindow::classify_wide(const char*, WindowMasks&) const {}

#endif

inline std::uint64_t PieceWindow::number_groups(std::uint64_t number, const WindowMasks& m) const
{
    if (rules_.digits == 1) { return number & ~m.inner; }
    std::uint64_t starts = number & ~(number << 1);
    if (rules_.digits != 3) { return starts; }
    if ((number & m.non_ascii) == 0)
    {
        const std::uint64_t fourth = number & number << 1 & number << 2;
        for (std::uint64_t next = starts << 3 & fourth; next != 0; next = next << 3 & fourth) { starts |= next; }
        return starts;
    }
    int count = 0;
    for (std::uint64_t left = number & ~m.inner; left != 0; left &= left - 1)
    {
        const std::uint64_t bit = left & (~left + 1);
        count = (starts & bit) != 0 ? 0 : count + 1;
        if (count % 3 == 0) { starts |= bit; }
    }
    return starts;
}

inline std::uint64_t PieceWindow::apply_contractions(const char* at, std::uint64_t candidates,
                                                     std::uint64_t starts) const
{
    const bool is_suffix = rules_.contractions == Contractions::suffix;
    const bool caseless = rules_.contractions != Contractions::ascii;
    int last_end = -1;
    for (; candidates != 0; candidates &= candidates - 1)
    {
        const int place = std::countr_zero(candidates);
        // The letters before are a contraction, not a word.
        if (is_suffix && place == last_end) { continue; }
        const char* stop = match_contraction(at + place, at + bytes + slack, caseless);
        const auto length = static_cast<int>(stop - at) - place;
        if (length == 0) { continue; }
        last_end = place + length;
        if (last_end >= 64) { continue; }
        std::uint64_t covered = ((std::uint64_t{1} << length) - 1) << place;
        if (!is_suffix) { covered &= covered - 1; }
        starts = (starts & ~covered) | std::uint64_t{1} << last_end;
    }
    return starts;
}

std::uint64_t PieceWindow::boundaries(const char* at, const WindowMasks& m) const
{
    std::uint64_t letters = m.lower | m.upper | m.letter;
    const std::uint64_t white = m.blank | m.newline;
    const std::uint64_t whole = m.valid == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << m.valid) - 1;
    if (rules_.han_apart && m.has_han) { return 0; }
    if (rules_.case_aware)
    {
        // Marks behind letters are letters of both cases. What a letter of both cases does before an upper one takes a look back.
        const bool marks_follow = (m.mark & ~(m.mark << 1) & ~(letters << 1)) == 0;
        if (!marks_follow || (m.upper != 0 && (m.letter | m.mark) != 0)) { return 0; }
    }
    if (rules_.marks_join) { letters |= m.mark; }
    const std::uint64_t punct = ~(letters | m.number | white) & whole;
    const std::uint64_t behind_prefix = (rules_.any_prefix ? m.blank : m.space) << 1;
    const std::uint64_t behind_space = m.space << 1;

    // Punctuation: a first character that does not follow a space may lead a word.
    const std::uint64_t punct_first = punct & ~(punct << 1);
    std::uint64_t starts = punct_first & ~behind_space;
    const std::uint64_t lead = rules_.any_prefix ? extend_characters(starts, m.inner) << 1 : 0;
    starts |= letters & ~(letters << 1) & ~(behind_prefix | lead);
    if (rules_.case_aware) { starts |= m.upper & m.lower << 1; }
    const std::uint64_t groups = number_groups(m.number, m);
    starts |= rules_.digits == 0 ? groups & ~behind_space : groups;

    // Blank: newlines behind punctuation belong to it.
    std::uint64_t taken = 0;
    if (rules_.punct_tail != PunctTail::none)
    {
        taken = m.newline & ~(m.newline + (m.newline & punct << 1));
        if (rules_.punct_tail == PunctTail::crlf_slash && (taken << 1 & m.slash) != 0) { return 0; }
    }
    const std::uint64_t free_white = white & ~taken;
    starts |= free_white & ~(free_white << 1);
    // The last one before something else goes its own way, unless it ends a line.
    const std::uint64_t may_part = rules_.newlines ? m.blank : white;
    starts |= first_bytes(may_part & ~(white >> 1), m.inner);
    if (rules_.newlines)
    {
        // Blank behind the last line end of a run.
        std::uint64_t indents = m.blank & (m.newline & ~taken) << 1;
        if (indents != 0 && ((indents + m.blank) & ~m.blank & m.newline) != 0)
        {
            std::uint64_t kept = 0;
            for (; indents != 0; indents &= indents - 1)
            {
                const std::uint64_t bit = indents & (~indents + 1);
                if (((bit + m.blank) & ~m.blank & m.newline) == 0) { kept |= bit; }
            }
            indents = kept;
        }
        starts |= indents;
    }
    if (m.apostrophe != 0 && rules_.contractions != Contractions::none)
    {
        const std::uint64_t before =
            rules_.contractions == Contractions::suffix ? letters << 1 : punct_first & ~behind_space;
        starts = apply_contractions(at, m.apostrophe & before, starts);
    }
    // What follows white at the end is not seen, nor the rest of a contraction.
    const std::uint64_t solid = ~white & whole;
    const int limit = std::min(solid == 0 ? 0 : 64 - std::countl_zero(solid), m.valid - 4);
    if (limit <= 0) { return 0; }
    return starts & ((std::uint64_t{2} << limit) - 1) & ~std::uint64_t{1};
}

std::uint64_t PieceWindow::find(const char* at) const
{
    WindowMasks m;
    if (has_avx2_) { classify_avx2(at, m); }
    else { classify(at, m); }
    if (m.non_ascii != 0) { classify_wide(at, m); }
    return boundaries(at, m);
}

}  // namespace plimsoll
