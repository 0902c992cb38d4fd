#include "io/tokenizer/byte_bpe_encoder.hpp"

#include <algorithm>
#include <bit>

#include "base/error.hpp"
#include "io/tokenizer/nfc.hpp"

namespace plimsoll
{

ByteBpeEncoder::ByteBpeEncoder(const ByteBpe& bpe)
    : bpe_(bpe),
      scanner_(bpe.plan.rules),
      window_(bpe.plan.rules),
      has_windows_(PieceWindow::is_available() && bpe.tables.has_all_bytes()),
      merger_(bpe.tables),
      out_(out_size + BpeMerger::max_short)
{
    if (bpe.plan.kind == SplitPlan::Kind::stages) { stages_ = std::make_unique<StageSplitter>(bpe.plan.stages); }
}

void ByteBpeEncoder::flush()
{
    ids_->insert(ids_->end(), out_.data(), out_.data() + out_num_);
    out_num_ = 0;
}

void ByteBpeEncoder::split_added(const AddedTokenMatcher& matcher, std::string_view text, std::vector<AddedPart>& parts)
{
    const bool as_text = bpe_.special_in_text == SpecialInText::text;
    parts.clear();
    const std::int64_t num = matcher.split(text, as_text, parts);
    counts_.special_in_text += num;
    if (num == 0 || bpe_.special_in_text != SpecialInText::error) { return; }
    for (const AddedPart& part : parts)
    {
        VALIDATE(!part.is_special, FormatError, "the text of special token '{}' stands in the document", part.text);
    }
}

void ByteBpeEncoder::encode(std::string_view text, std::vector<std::uint32_t>& ids)
{
    ids_ = &ids;
    if (bpe_.raw.empty()) { encode_normalized(text); }
    else
    {
        split_added(bpe_.raw, text, raw_parts_);
        for (const AddedPart& part : raw_parts_)
        {
            flush();
            if (part.id >= 0) { ids.push_back(static_cast<std::uint32_t>(part.id)); }
            else { encode_normalized(part.text); }
        }
    }
    flush();
}

void ByteBpeEncoder::encode_normalized(std::string_view text)
{
    if (bpe_.nfc && !is_surely_nfc(text))
    {
        normalized_.clear();
        append_nfc(text, normalized_);
        text = normalized_;
    }
    if (bpe_.normalized.empty())
    {
        encode_text(text);
        return;
    }
    split_added(bpe_.normalized, text, normalized_parts_);
    for (const AddedPart& part : normalized_parts_)
    {
        flush();
        if (part.id >= 0) { ids_->push_back(static_cast<std::uint32_t>(part.id)); }
        else { encode_text(part.text); }
    }
}

void ByteBpeEncoder::encode_text(std::string_view text)
{
    if (text.empty()) { return; }
    if (bpe_.plan.prefix_space && text.front() != ' ')
    {
        prefixed_.assign(1, ' ').append(text);
        text = prefixed_;
    }
    encode_pieces(text);
}

void ByteBpeEncoder::encode_pieces(std::string_view text)
{
    const char* at = text.data();
    const char* const end = at + text.size();
    switch (bpe_.plan.kind)
    {
        case SplitPlan::Kind::whole: piece(at, text.size()); return;
        case SplitPlan::Kind::stages:
            for (const std::string_view part : stages_->split(text)) { piece(part.data(), part.size()); }
            return;
        case SplitPlan::Kind::deepseek:
            deepseek_.start();
            while (at < end)
            {
                const char* stop = deepseek_.next(at, end);
                piece(at, static_cast<std::size_t>(stop - at));
                at = stop;
            }
            return;
        case SplitPlan::Kind::scanner: break;
    }
    if (has_windows_) { at = encode_windows(at, end); }
    while (at < end)
    {
        const char* stop = scanner_.next(at, end);
        piece(at, static_cast<std::size_t>(stop - at));
        at = stop;
    }
}

namespace
{

struct PieceMask
{
    std::uint64_t low;
    std::uint64_t high;
};

constexpr std::array<PieceMask, 16> make_piece_masks()
{
    std::array<PieceMask, 16> masks{};
    for (std::size_t n = 0; n < 16; ++n)
    {
        masks[n].low = n >= 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << (8 * n)) - 1;
        masks[n].high = n <= 8 ? 0 : (std::uint64_t{1} << (8 * (n - 8))) - 1;
    }
    return masks;
}

constexpr std::array<PieceMask, 16> piece_masks = make_piece_masks();

}  // namespace

// A piece with at least PieceWindow::slack bytes behind its begin, so that two loads and a mask make its key.
inline void ByteBpeEncoder::window_piece(const char* at, std::size_t bytes)
{
    if (bytes > PieceCache::short_bytes)
    {
        --counts_.cache_lookups;
        --counts_.cache_hits;
        piece(at, bytes);
        return;
    }
    PieceWords key = {load_u64(at) & piece_masks[bytes].low, load_u64(at + 8) & piece_masks[bytes].high};
    const std::uint64_t hash = hash_words(key, bytes);
    key.high |= static_cast<std::uint64_t>(bytes) << 56;
    PieceCache::Short* line = cache_.short_line(hash);
    const PieceCache::Short* entry = line;
    if (entry->low != key.low || entry->high != key.high)
    {
        ++entry;
        if (entry->low != key.low || entry->high != key.high)
        {
            --counts_.cache_hits;
            short_miss(at, bytes, key, hash, line);
            return;
        }
    }
    std::uint32_t* out = out_.data() + out_num_;
    const std::uint32_t first = entry->ids[0];
    std::memcpy(out, entry->ids, sizeof entry->ids);
    out[0] = first & PieceCache::id_mask;
    out_num_ += (first >> 28) + 1;
}

// As far as whole windows go; returns where the next piece begins.
const char* ByteBpeEncoder::encode_windows(const char* at, const char* end)
{
    while (end - at >= PieceWindow::bytes + PieceWindow::slack)
    {
        std::uint64_t starts = window_.find(at);
        if (starts == 0)
        {
            const char* stop = scanner_.next(at, end);
            piece(at, static_cast<std::size_t>(stop - at));
            at = stop;
            continue;
        }
        const char* const begin = at;
        if (out_num_ >= out_size - PieceWindow::bytes) { flush(); }
        const int num = std::popcount(starts);
        counts_.cache_lookups += num;
        counts_.cache_hits += num;
        for (; starts != 0;)
        {
            const int place = std::countr_zero(starts);
            starts &= starts - 1;
            // Places count from the window's begin; the piece's is where the one before ended.
            const char* stop = begin + place;
            window_piece(at, static_cast<std::size_t>(stop - at));
            at = stop;
        }
    }
    return at;
}

void ByteBpeEncoder::piece(const char* at, std::size_t bytes)
{
    if (out_num_ >= out_size) { flush(); }
    if (!bpe_.tables.has_all_bytes() || bytes > PieceCache::long_bytes) { uncached_piece({at, bytes}); }
    else if (bytes <= PieceCache::short_bytes) { short_piece(at, bytes); }
    else { long_piece(at, bytes); }
}

void ByteBpeEncoder::short_piece(const char* at, std::size_t bytes)
{
    PieceWords key = load_piece(at, bytes);
    const std::uint64_t hash = hash_words(key, bytes);
    key.high |= static_cast<std::uint64_t>(bytes) << 56;
    PieceCache::Short* line = cache_.short_line(hash);
    ++counts_.cache_lookups;
    for (int i = 0; i < 2; ++i)
    {
        const PieceCache::Short& entry = line[i];
        if (entry.low != key.low || entry.high != key.high) { continue; }
        std::uint32_t* out = out_.data() + out_num_;
        std::memcpy(out, entry.ids, sizeof entry.ids);
        out[0] &= PieceCache::id_mask;
        out_num_ += (entry.ids[0] >> 28) + 1;
        ++counts_.cache_hits;
        return;
    }
    short_miss(at, bytes, key, hash, line);
}

void ByteBpeEncoder::short_miss(const char* at, std::size_t bytes, PieceWords key, std::uint64_t hash,
                                PieceCache::Short* line)
{
    const std::size_t num = resolve(at, bytes, hash);
    if (num <= PieceCache::short_ids) { PieceCache::put(line, key, out_.data() + out_num_, num); }
    out_num_ += num;
}

void ByteBpeEncoder::long_piece(const char* at, std::size_t bytes)
{
    std::uint64_t words[4] = {load_u64(at), load_u64(at + 8), 0, 0};
    if (bytes > 16)
    {
        const PieceWords tail = load_piece(at + 16, bytes - 16);
        words[2] = tail.low;
        words[3] = tail.high;
    }
    words[3] |= static_cast<std::uint64_t>(bytes) << 56;
    const std::uint64_t hash = hash_piece({at, bytes});
    PieceCache::Long& entry = cache_.long_entry(hash);
    std::uint32_t* out = out_.data() + out_num_;
    ++counts_.cache_lookups;
    if (std::memcmp(entry.words, words, sizeof words) == 0)
    {
        std::memcpy(out, entry.ids, sizeof entry.ids);
        out[0] &= PieceCache::id_mask;
        out_num_ += (entry.ids[0] >> 28) + 1;
        ++counts_.cache_hits;
        return;
    }
    const std::size_t num = resolve(at, bytes, hash);
    if (num <= PieceCache::long_ids)
    {
        std::memcpy(entry.words, words, sizeof words);
        std::memcpy(entry.ids, out, num * sizeof(std::uint32_t));
        entry.ids[0] |= static_cast<std::uint32_t>(num - 1) << 28;
    }
    out_num_ += num;
}

// Ids of a piece of at most max_short bytes, all of which have ids, behind the ones that are there. Returns how many.
std::size_t ByteBpeEncoder::resolve(const char* at, std::size_t bytes, std::uint64_t hash)
{
    std::uint32_t* out = out_.data() + out_num_;
    if (bpe_.tables.definition().whole_first)
    {
        const std::int64_t id = bpe_.tables.find_token({at, bytes}, hash);
        if (id >= 0)
        {
            out[0] = static_cast<std::uint32_t>(id);
            return 1;
        }
    }
    return merger_.merge_short(at, bytes, out);
}

void ByteBpeEncoder::uncached_piece(std::string_view piece)
{
    if (piece.empty()) { return; }
    if (piece.size() <= BpeMerger::max_short && bpe_.tables.has_all_bytes())
    {
        out_num_ += resolve(piece.data(), piece.size(), hash_piece(piece));
        return;
    }
    flush();
    if (bpe_.tables.definition().whole_first)
    {
        const std::int64_t id = bpe_.tables.find_token(piece, hash_piece(piece));
        if (id >= 0)
        {
            ids_->push_back(static_cast<std::uint32_t>(id));
            return;
        }
    }
    counts_.unknown += merger_.merge(piece, *ids_);
}

}  // namespace plimsoll
