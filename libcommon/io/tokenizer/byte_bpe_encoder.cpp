#include "io/tokenizer/byte_bpe_encoder.hpp"

#include <algorithm>
#include <bit>

#include "base/error.hpp"
#include "io/tokenizer/unicode_normalize.hpp"

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
    parts.clear();
    counts_.special_in_text += matcher.split(text, bpe_.special_in_text, parts);
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
    if (bpe_.nfc) { text = plimsoll::normalized(text, NormalForm::nfc, normalized_); }
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

// Puts a piece into the queue and its entry on the way from memory. At least 16 bytes can be read: two loads and a mask make the key.
inline void ByteBpeEncoder::queue_piece(const char* at, std::size_t bytes)
{
    Queued& queued = queue_[num_queued_++];
    queued.at = at;
    queued.bytes = bytes;
    if (bytes > PieceCache::short_bytes)
    {
        if (bytes <= PieceCache::long_bytes)
        {
            queued.hash = hash_piece({at, bytes});
            const PieceCache::Long* line = cache_.long_line(queued.hash);
            __builtin_prefetch(line);
            __builtin_prefetch(line + 1);
        }
        return;
    }
    queued.key = {load_u64(at) & piece_masks[bytes].low, load_u64(at + 8) & piece_masks[bytes].high};
    queued.hash = hash_words(queued.key, bytes);
    queued.key.high |= static_cast<std::uint64_t>(bytes) << 56;
    __builtin_prefetch(cache_.short_line(queued.hash));
}

// Ids of what is in the queue, in order.
void ByteBpeEncoder::drain_queue()
{
    for (std::size_t i = 0; i < num_queued_; ++i)
    {
        const Queued& queued = queue_[i];
        // Each piece appends at most max_short before the next look.
        if (out_num_ >= out_size) { flush(); }
        if (queued.bytes > PieceCache::short_bytes)
        {
            if (queued.bytes <= PieceCache::long_bytes) { long_piece(queued.at, queued.bytes, queued.hash); }
            else { uncached_piece({queued.at, queued.bytes}); }
            continue;
        }
        PieceCache::Short* line = cache_.short_line(queued.hash);
        const bool is_second = ((line->low ^ queued.key.low) | (line->high ^ queued.key.high)) != 0;
        const PieceCache::Short* entry = line + (is_second ? 1 : 0);
        ++counts_.cache_lookups;
        if (((entry->low ^ queued.key.low) | (entry->high ^ queued.key.high)) != 0)
        {
            short_miss(queued.at, queued.bytes, queued.key, queued.hash, line);
            continue;
        }
        ++counts_.cache_hits;
        std::uint32_t* out = out_.data() + out_num_;
        const std::uint32_t first = entry->ids[0];
        std::memcpy(out, entry->ids, sizeof entry->ids);
        out[0] = first & PieceCache::id_mask;
        out_num_ += (first >> 28) + 1;
    }
    num_queued_ = 0;
}

// As far as whole windows go; returns where the next piece begins.
const char* ByteBpeEncoder::encode_windows(const char* at, const char* end)
{
    while (end - at >= PieceWindow::bytes + PieceWindow::slack)
    {
        if (num_queued_ >= queue_size - PieceWindow::bytes) { drain_queue(); }
        std::uint64_t starts = window_.find(at);
        if (starts == 0)
        {
            const char* stop = scanner_.next(at, end);
            queue_piece(at, static_cast<std::size_t>(stop - at));
            at = stop;
            continue;
        }
        // Places count from the window's begin.
        const char* const begin = at;
        for (; starts != 0; starts &= starts - 1)
        {
            const char* stop = begin + std::countr_zero(starts);
            queue_piece(at, static_cast<std::size_t>(stop - at));
            at = stop;
        }
    }
    drain_queue();
    return at;
}

void ByteBpeEncoder::piece(const char* at, std::size_t bytes)
{
    if (out_num_ >= out_size) { flush(); }
    if (!bpe_.tables.has_all_bytes() || bytes > PieceCache::long_bytes) { uncached_piece({at, bytes}); }
    else if (bytes <= PieceCache::short_bytes) { short_piece(at, bytes); }
    else { long_piece(at, bytes, hash_piece({at, bytes})); }
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
    const std::string_view piece(at, bytes);
    if (use_stored(piece, hash)) { return; }
    const std::size_t num = resolve(at, bytes, hash);
    if (num <= PieceCache::short_ids) { PieceCache::put(line, key, out_.data() + out_num_, num); }
    else { cache_.store(piece, hash, out_.data() + out_num_, num); }
    out_num_ += num;
}

void ByteBpeEncoder::long_piece(const char* at, std::size_t bytes, std::uint64_t hash)
{
    std::uint64_t words[4] = {load_u64(at), load_u64(at + 8), 0, 0};
    if (bytes > 16)
    {
        const PieceWords tail = load_piece(at + 16, bytes - 16);
        words[2] = tail.low;
        words[3] = tail.high;
    }
    words[3] |= static_cast<std::uint64_t>(bytes) << 56;
    PieceCache::Long* line = cache_.long_line(hash);
    std::uint32_t* out = out_.data() + out_num_;
    ++counts_.cache_lookups;
    for (int i = 0; i < 2; ++i)
    {
        const PieceCache::Long& entry = line[i];
        if (std::memcmp(entry.words, words, sizeof words) != 0) { continue; }
        std::memcpy(out, entry.ids, sizeof entry.ids);
        out[0] &= PieceCache::id_mask;
        out_num_ += (entry.ids[0] >> 28) + 1;
        ++counts_.cache_hits;
        return;
    }
    if (use_stored({at, bytes}, hash)) { return; }
    const std::size_t num = resolve(at, bytes, hash);
    if (num > PieceCache::long_ids) { cache_.store({at, bytes}, hash, out, num); }
    else { PieceCache::put(line, words, out, num); }
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

// Ids of a piece that has no place in the tables, where it was met before.
bool ByteBpeEncoder::use_stored(std::string_view piece, std::uint64_t hash)
{
    std::size_t num = 0;
    const std::uint32_t* ids = cache_.find_stored(piece, hash, num);
    if (ids == nullptr) { return false; }
    if (num > BpeMerger::max_short)
    {
        flush();
        ids_->insert(ids_->end(), ids, ids + num);
    }
    else
    {
        std::copy(ids, ids + num, out_.data() + out_num_);
        out_num_ += num;
    }
    ++counts_.cache_hits;
    return true;
}

// Longer than the tables' pieces, or with bytes that have no id.
void ByteBpeEncoder::uncached_piece(std::string_view piece)
{
    if (piece.empty()) { return; }
    const std::uint64_t hash = hash_piece(piece);
    const bool is_stored = piece.size() <= PieceCache::store_bytes && bpe_.tables.has_all_bytes();
    ++counts_.cache_lookups;
    if (is_stored && use_stored(piece, hash)) { return; }
    if (piece.size() <= BpeMerger::max_short && bpe_.tables.has_all_bytes())
    {
        const std::size_t num = resolve(piece.data(), piece.size(), hash);
        cache_.store(piece, hash, out_.data() + out_num_, num);
        out_num_ += num;
        return;
    }
    flush();
    const std::size_t begin = ids_->size();
    const std::int64_t id = bpe_.tables.definition().whole_first ? bpe_.tables.find_token(piece, hash) : -1;
    if (id >= 0) { ids_->push_back(static_cast<std::uint32_t>(id)); }
    else { counts_.unknown += merger_.merge(piece, *ids_); }
    if (is_stored) { cache_.store(piece, hash, ids_->data() + begin, ids_->size() - begin); }
}

}  // namespace plimsoll
