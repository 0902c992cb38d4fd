#include "io/tokenizer/unicode_normalize.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <unordered_map>
#include <vector>

#include "io/tokenizer/utf8_step.hpp"

namespace plimsoll
{

namespace
{

#include "io/tokenizer/unicode_normalize_data.inc"

constexpr std::uint32_t normalize_limit = 0x110000;
constexpr std::uint32_t hangul_s = 0xAC00, hangul_l = 0x1100, hangul_v = 0x1161, hangul_t = 0x11A7;
constexpr std::uint32_t hangul_num_v = 21, hangul_num_t = 28, hangul_num_s = 11172;

/// What the forms need to know about a character. Bit f of the two masks speaks of form f.
struct NormalizeProperty
{
    std::uint8_t combining_class = 0;
    std::uint8_t boundary = 0x0F;  ///< nothing before it can change together with it
    std::uint8_t inert = 0x0F;     ///< alone it is its own normal form, and it is a boundary
};

struct Decomposition
{
    std::uint32_t start = 0;
    std::uint32_t length = 0;
};

/// The tables unpacked, made at first use (about 0.3 ms) and then only read.
class NormalizeTables
{
  public:
    NormalizeTables()
    {
        read_classes();
        read_decompositions();
        for (const auto& entry : canonical_) { set_masks(entry.first); }
        for (const auto& entry : compatible_) { set_masks(entry.first); }
        for (const std::uint32_t c : seconds_) { set_masks(c); }
        for (std::uint32_t c = hangul_v; c < hangul_v + hangul_num_v; ++c) { set_masks(c); }
        for (std::uint32_t c = hangul_t + 1; c < hangul_t + hangul_num_t; ++c) { set_masks(c); }
        for (std::uint32_t c = hangul_s; c < hangul_s + hangul_num_s; ++c) { writable(c).inert = 0x05; }
        for (std::size_t i = 0; i < std::size(normalize_classes); i += 3)
        {
            for (std::uint32_t c = normalize_classes[i]; c <= normalize_classes[i + 1]; ++c) { set_masks(c); }
        }
    }

    const NormalizeProperty& property(std::uint32_t c) const { return pages_[page_of_[c >> 8]][c & 0xFF]; }

    /// Appends the full decomposition of `c`.
    void decompose(std::uint32_t c, bool compatible, std::vector<std::uint32_t>& out) const
    {
        if (c - hangul_s < hangul_num_s)
        {
            const std::uint32_t s = c - hangul_s;
            out.push_back(hangul_l + s / (hangul_num_v * hangul_num_t));
            out.push_back(hangul_v + s % (hangul_num_v * hangul_num_t) / hangul_num_t);
            if (s % hangul_num_t != 0) { out.push_back(hangul_t + s % hangul_num_t); }
            return;
        }
        const Decomposition step = one_step(c, compatible);
        if (step.length == 0) { return out.push_back(c); }
        for (std::uint32_t i = 0; i < step.length; ++i)
        {
            decompose(normalize_decompositions[step.start + i], compatible, out);
        }
    }

    /// The character that (a, b) compose to; 0 where they do not.
    std::uint32_t compose(std::uint32_t a, std::uint32_t b) const
    {
        if (a - hangul_l < 19 && b - hangul_v < hangul_num_v)
        {
            return hangul_s + ((a - hangul_l) * hangul_num_v + (b - hangul_v)) * hangul_num_t;
        }
        const std::uint32_t s = a - hangul_s;
        if (s < hangul_num_s && s % hangul_num_t == 0 && b - hangul_t - 1 < hangul_num_t - 1)
        {
            return a + b - hangul_t;
        }
        const auto found = composed_.find(std::uint64_t{a} << 32 | b);
        return found == composed_.end() ? 0 : found->second;
    }

  private:
    using Page = std::array<NormalizeProperty, 256>;

    /// A character has one decomposition; the canonical ones are part of the compatibility forms too.
    Decomposition one_step(std::uint32_t c, bool compatible) const
    {
        const auto canonical = canonical_.find(c);
        if (canonical != canonical_.end()) { return canonical->second; }
        const auto other = compatible ? compatible_.find(c) : compatible_.end();
        return other == compatible_.end() ? Decomposition{} : other->second;
    }

    NormalizeProperty& writable(std::uint32_t c)
    {
        std::uint16_t& page = page_of_[c >> 8];
        if (page == 0)
        {
            page = static_cast<std::uint16_t>(pages_.size());
            pages_.emplace_back();
        }
        return pages_[page][c & 0xFF];
    }

    void read_classes()
    {
        pages_.emplace_back();
        for (std::size_t i = 0; i < std::size(normalize_classes); i += 3)
        {
            for (std::uint32_t c = normalize_classes[i]; c <= normalize_classes[i + 1]; ++c)
            {
                writable(c).combining_class = static_cast<std::uint8_t>(normalize_classes[i + 2]);
            }
        }
    }

    void read_decompositions()
    {
        for (std::uint32_t i = 0; i < std::size(normalize_decompositions);)
        {
            const std::uint32_t head = normalize_decompositions[i];
            const std::uint32_t c = head >> 6, length = head & 31U;
            const bool compatible = (head & 32U) != 0;
            (compatible ? compatible_ : canonical_)[c] = {i + 1, length};
            const bool excluded = std::find(std::begin(normalize_excluded), std::end(normalize_excluded), c) !=
                                  std::end(normalize_excluded);
            if (!compatible && length == 2 && !excluded)
            {
                const std::uint32_t b = normalize_decompositions[i + 2];
                composed_[std::uint64_t{normalize_decompositions[i + 1]} << 32 | b] = c;
                seconds_.push_back(b);
            }
            i += 1 + length;
        }
        std::sort(seconds_.begin(), seconds_.end());
    }

    bool composes_backwards(std::uint32_t c) const
    {
        return c - hangul_v < hangul_num_v || c - hangul_t - 1 < hangul_num_t - 1 ||
               std::binary_search(seconds_.begin(), seconds_.end(), c);
    }

    void set_masks(std::uint32_t c)
    {
        for (int form = 0; form < 4; ++form)
        {
            scratch_.clear();
            decompose(c, form >= 2, scratch_);
            const bool composing = form % 2 == 0;
            const bool boundary =
                property(scratch_[0]).combining_class == 0 && !(composing && composes_backwards(scratch_[0]));
            // What composes back to itself: canonical decompositions that are not excluded.
            const bool recomposes = composing && is_composed(c) && canonical_full(c) == scratch_;
            const bool same = scratch_.size() == 1 && scratch_[0] == c;
            NormalizeProperty& p = writable(c);
            const auto bit = static_cast<std::uint8_t>(1U << form);
            if (!boundary) { p.boundary = static_cast<std::uint8_t>(p.boundary & ~bit); }
            if (!boundary || !(same || recomposes)) { p.inert = static_cast<std::uint8_t>(p.inert & ~bit); }
        }
    }

    bool is_composed(std::uint32_t c) const
    {
        return canonical_.count(c) != 0 && std::find(std::begin(normalize_excluded), std::end(normalize_excluded), c) ==
                                               std::end(normalize_excluded);
    }

    std::vector<std::uint32_t> canonical_full(std::uint32_t c) const
    {
        std::vector<std::uint32_t> full;
        decompose(c, false, full);
        return full;
    }

    std::array<std::uint16_t, normalize_limit / 256> page_of_{};
    std::vector<Page> pages_;
    std::unordered_map<std::uint32_t, Decomposition> canonical_, compatible_;
    std::unordered_map<std::uint64_t, std::uint32_t> composed_;
    std::vector<std::uint32_t> seconds_, scratch_;
};

const NormalizeTables& normalize_tables()
{
    static const NormalizeTables tables;
    return tables;
}

/// Marks in the order of their classes, those of one class as they came.
void order_marks(const NormalizeTables& tables, std::vector<std::uint32_t>& text)
{
    const auto class_of = [&](std::uint32_t c) { return tables.property(c).combining_class; };
    for (auto at = text.begin(); at != text.end();)
    {
        if (class_of(*at) == 0)
        {
            ++at;
            continue;
        }
        auto end = at;
        while (end != text.end() && class_of(*end) != 0) { ++end; }
        std::stable_sort(at, end, [&](std::uint32_t a, std::uint32_t b) { return class_of(a) < class_of(b); });
        at = end;
    }
}

void compose_all(const NormalizeTables& tables, std::vector<std::uint32_t>& text)
{
    std::size_t starter = text.size(), kept = 0;
    int last_class = 0;  // of the last character kept behind the starter; 0: none
    for (const std::uint32_t c : text)
    {
        const int own = tables.property(c).combining_class;
        const bool blocked = last_class != 0 && (own == 0 || last_class >= own);
        if (starter < text.size() && !blocked)
        {
            if (const std::uint32_t composed = tables.compose(text[starter], c))
            {
                text[starter] = composed;
                continue;
            }
        }
        if (own == 0) { starter = kept; }
        last_class = own;
        text[kept++] = c;
    }
    text.resize(kept);
}

/// Length of the part of `text` from `position` on that is its own normal form and ends before a boundary.
std::size_t inert_end(const NormalizeTables& tables, std::string_view text, std::size_t position, unsigned bit)
{
    std::size_t safe = position;  // everything before it stays as it is, whatever follows
    while (position < text.size())
    {
        const auto byte = static_cast<unsigned char>(text[position]);
        if (byte < 0x80)
        {
            safe = position++;
            continue;
        }
        const Utf8Step step = utf8_step(text, position);
        if (!step.valid)
        {
            safe = ++position;
            continue;
        }
        if ((tables.property(step.code_point).inert & bit) == 0)
        {
            return (tables.property(step.code_point).boundary & bit) != 0 ? position : safe;
        }
        safe = position;
        position += step.bytes;
    }
    return text.size();
}

/// From a boundary to the next one.
std::size_t segment_end(const NormalizeTables& tables, std::string_view text, std::size_t position, unsigned bit,
                        std::vector<std::uint32_t>& segment)
{
    segment.clear();
    while (position < text.size())
    {
        const Utf8Step step = utf8_step(text, position);
        if (!step.valid) { break; }
        if (!segment.empty() && (tables.property(step.code_point).boundary & bit) != 0) { break; }
        segment.push_back(step.code_point);
        position += step.bytes;
    }
    return position;
}

void append_from(std::string_view text, std::size_t position, NormalForm form, std::string& out)
{
    const NormalizeTables& tables = normalize_tables();
    const unsigned bit = 1U << static_cast<unsigned>(form);
    const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
    std::vector<std::uint32_t> segment, decomposed;
    while (position < text.size())
    {
        const std::size_t end = inert_end(tables, text, position, bit);
        out.append(text, position, end - position);
        position = segment_end(tables, text, end, bit, segment);
        decomposed.clear();
        for (const std::uint32_t c : segment) { tables.decompose(c, compatible, decomposed); }
        order_marks(tables, decomposed);
        if (form == NormalForm::nfc || form == NormalForm::nfkc) { compose_all(tables, decomposed); }
        for (const std::uint32_t c : decomposed) { append_utf8(c, out); }
    }
}

}  // namespace

std::string_view normalization_unicode_version() { return "9.0.0"; }

void append_normalized(std::string_view text, NormalForm form, std::string& out) { append_from(text, 0, form, out); }

std::string_view normalized(std::string_view text, NormalForm form, std::string& buffer)
{
    const std::size_t end = inert_end(normalize_tables(), text, 0, 1U << static_cast<unsigned>(form));
    if (end == text.size()) { return text; }
    buffer.assign(text, 0, end);
    append_from(text, end, form, buffer);
    return buffer;
}

}  // namespace plimsoll
