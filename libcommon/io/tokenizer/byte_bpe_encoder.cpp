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
      miss_ids_(queue_size * BpeMerger::max_short),
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
        queued.hash = hash_piece({at, bytes});
        if (bytes > PieceCache::long_bytes)
        {
            __builtin_prefetch(cache_.stored_line(queued.hash));
            return;
        }
        const PieceCache::Long* set = cache_.long_set(queued.hash);
        __builtin_prefetch(set);
        __builtin_prefetch(set + 1);
        return;
    }
    queued.key = {load_u64(at) & piece_masks[bytes].low, load_u64(at + 8) & piece_masks[bytes].high};
    queued.hash = hash_words(queued.key, bytes);
    queued.key.high |= static_cast<std::uint64_t>(bytes) << 56;
    __builtin_prefetch(cache_.short_set(queued.hash));
}

namespace
{

// Writes an entry's ids, and more that do not count. Returns how many count.
template<class Entry>
inline std::size_t put_ids(const Entry& entry, std::uint32_t* out)
{
    const std::uint32_t first = entry.ids[0];
    std::memcpy(out, entry.ids, sizeof entry.ids);
    out[0] = first & PieceCache::id_mask;
    return (first >> 28) + 1;
}

}  // namespace

// Ids of what is in the queue, in order.
void ByteBpeEncoder::drain_queue()
{
    static_assert(queue_size * PieceCache::long_ids <= out_size / 2);
    if (out_num_ > out_size / 2) { flush(); }
    const std::size_t num = num_queued_;
    std::uint32_t* const out = out_.data();
    std::size_t out_num = out_num_;
    for (std::size_t i = 0; i < num; ++i)
    {
        const Queued& queued = queue_[i];
        if (queued.bytes <= PieceCache::short_bytes)
        {
            const PieceCache::Short* set = cache_.short_set(queued.hash);
            const bool is_second = ((set->low ^ queued.key.low) | (set->high ^ queued.key.high)) != 0;
            const PieceCache::Short& entry = set[is_second ? 1 : 0];
            if (((entry.low ^ queued.key.low) | (entry.high ^ queued.key.high)) == 0)
            {
                out_num += put_ids(entry, out + out_num);
                continue;
            }
        }
        out_num_ = out_num;
        drain_unusual(queued);
        out_num = out_num_;
    }
    out_num_ = out_num;
    settle_misses();
    counts_.cache_lookups += static_cast<std::int64_t>(num);
    counts_.cache_hits += static_cast<std::int64_t>(num);
    num_queued_ = 0;
}

// A long piece, or a short one that is not in front of its set.
void ByteBpeEncoder::drain_unusual(const Queued& queued)
{
    if (queued.bytes <= BpeMerger::max_short)
    {
        if (queued.bytes <= PieceCache::short_bytes || !emit_long(queued)) { add_miss(queued); }
        return;
    }
    settle_misses();
    // It may leave max_short ids in out_, and so may each of the queue.
    if (out_num_ > out_size / 2) { flush(); }
    uncached_piece({queued.at, queued.bytes}, queued.hash);
    --counts_.cache_lookups;  // counted there
    --counts_.cache_hits;
}

// Ids of a piece that is too long for a short entry, where its table has it.
bool ByteBpeEncoder::emit_long(const Queued& queued)
{
    if (queued.bytes > PieceCache::long_bytes) { return false; }
    const PieceCache::Long* entry =
        PieceCache::find(cache_.long_set(queued.hash), PieceCache::long_words(queued.at, queued.bytes));
    if (entry == nullptr) { return false; }
    out_num_ += put_ids(*entry, out_.data() + out_num_);
    return true;
}

void ByteBpeEncoder::add_miss(const Queued& queued)
{
    misses_[num_misses_++] = {&queued, out_num_, nullptr, 0, Miss::Source::fresh};
    if (queued.bytes <= PieceCache::short_bytes) { __builtin_prefetch(cache_.short_set(queued.hash) + 2); }
    __builtin_prefetch(cache_.stored_line(queued.hash));
    __builtin_prefetch(bpe_.tables.token_place(queued.hash));
}

// Everything up to here goes to the caller, the misses in their places; then they are kept.
void ByteBpeEncoder::settle_misses()
{
    if (num_misses_ == 0) { return; }
    resolve_misses();
    std::size_t from = 0;
    for (std::size_t i = 0; i < num_misses_; ++i)
    {
        const Miss& miss = misses_[i];
        ids_->insert(ids_->end(), out_.data() + from, out_.data() + miss.out_at);
        ids_->insert(ids_->end(), miss.ids, miss.ids + miss.num_ids);
        from = miss.out_at;
    }
    ids_->insert(ids_->end(), out_.data() + from, out_.data() + out_num_);
    out_num_ = 0;
    // Only now: what find_stored() gave is gone when the store is emptied.
    for (std::size_t i = 0; i < num_misses_; ++i)
    {
        counts_.cache_hits -= misses_[i].source == Miss::Source::fresh ? 1 : 0;
        if (misses_[i].source != Miss::Source::store) { keep(misses_[i]); }
    }
    num_misses_ = 0;
}

// Whether the piece was met before.
bool ByteBpeEncoder::recall(Miss& miss, std::uint32_t* ids)
{
    const Queued& queued = *miss.queued;
    const PieceCache::Short* entry = nullptr;
    if (queued.bytes <= PieceCache::short_bytes)
    {
        entry = PieceCache::find_behind(cache_.short_set(queued.hash), queued.key);
    }
    if (entry != nullptr)
    {
        // It is about to move to the front of its set.
        std::memcpy(ids, entry->ids, sizeof entry->ids);
        ids[0] &= PieceCache::id_mask;
        miss.ids = ids;
        miss.num_ids = (entry->ids[0] >> 28) + 1;
        miss.source = Miss::Source::set;
        return true;
    }
    miss.ids = cache_.find_stored({queued.at, queued.bytes}, queued.hash, miss.num_ids);
    if (miss.ids != nullptr) { miss.source = Miss::Source::store; }
    return miss.ids != nullptr;
}

// What was met before, what is a token, and what has to be merged.
void ByteBpeEncoder::resolve_misses()
{
    jobs_.clear();
    std::uint32_t* ids = miss_ids_.data();
    for (std::size_t i = 0; i < num_misses_; ++i, ids += BpeMerger::max_short)
    {
        Miss& miss = misses_[i];
        if (recall(miss, ids)) { continue; }
        const std::string_view piece(miss.queued->at, miss.queued->bytes);
        miss.ids = ids;
        const std::int64_t id =
            bpe_.tables.definition().whole_first ? bpe_.tables.find_token(piece, miss.queued->hash) : -1;
        miss.num_ids = id >= 0 ? 1 : 0;
        if (id >= 0) { *ids = static_cast<std::uint32_t>(id); }
        else { jobs_.push_back({piece.data(), piece.size(), ids, 0}); }
    }
    merger_.merge_all(jobs_.data(), jobs_.size());
    std::size_t job = 0;
    for (std::size_t i = 0; i < num_misses_; ++i)
    {
        if (misses_[i].num_ids == 0) { misses_[i].num_ids = jobs_[job++].num_ids; }
    }
}

// A piece may miss more than once in one queue.
void ByteBpeEncoder::keep(const Miss& miss)
{
    const Queued& queued = *miss.queued;
    if (queued.bytes <= PieceCache::short_bytes && miss.num_ids <= PieceCache::short_ids)
    {
        PieceCache::put(cache_.short_set(queued.hash), queued.key, miss.ids, miss.num_ids);
        return;
    }
    const bool is_long = queued.bytes > PieceCache::short_bytes && queued.bytes <= PieceCache::long_bytes;
    if (is_long && miss.num_ids <= PieceCache::long_ids)
    {
        PieceCache::put(cache_.long_set(queued.hash), PieceCache::long_words(queued.at, queued.bytes), miss.ids,
                        miss.num_ids);
        return;
    }
    const std::string_view piece(queued.at, queued.bytes);
    std::size_t num = 0;
    if (cache_.find_stored(piece, queued.hash, num) == nullptr)
    {
        cache_.store(piece, queued.hash, miss.ids, miss.num_ids);
    }
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
    if (!bpe_.tables.has_all_bytes() || bytes > PieceCache::long_bytes)
    {
        uncached_piece({at, bytes}, hash_piece({at, bytes}));
    }
    else if (bytes <= PieceCache::short_bytes) { short_piece(at, bytes); }
    else { long_piece(at, bytes, hash_piece({at, bytes})); }
}

void ByteBpeEncoder::short_piece(const char* at, std::size_t bytes)
{
    PieceWords key = load_piece(at, bytes);
    const std::uint64_t hash = hash_words(key, bytes);
    key.high |= static_cast<std::uint64_t>(bytes) << 56;
    PieceCache::Short* set = cache_.short_set(hash);
    ++counts_.cache_lookups;
    for (int i = 0; i < 2; ++i)
    {
        const PieceCache::Short& entry = set[i];
        if (entry.low != key.low || entry.high != key.high) { continue; }
        out_num_ += put_ids(entry, out_.data() + out_num_);
        ++counts_.cache_hits;
        return;
    }
    short_miss(at, bytes, key, hash, set);
}

void ByteBpeEncoder::short_miss(const char* at, std::size_t bytes, PieceWords key, std::uint64_t hash,
                                PieceCache::Short* set)
{
    const std::string_view piece(at, bytes);
    if (use_stored(piece, hash)) { return; }
    const std::size_t num = resolve(at, bytes, hash);
    if (num <= PieceCache::short_ids) { PieceCache::put(set, key, out_.data() + out_num_, num); }
    else { cache_.store(piece, hash, out_.data() + out_num_, num); }
    out_num_ += num;
}

void ByteBpeEncoder::long_piece(const char* at, std::size_t bytes, std::uint64_t hash)
{
    const PieceCache::LongWords words = PieceCache::long_words(at, bytes);
    PieceCache::Long* set = cache_.long_set(hash);
    ++counts_.cache_lookups;
    if (const PieceCache::Long* entry = PieceCache::find(set, words))
    {
        out_num_ += put_ids(*entry, out_.data() + out_num_);
        ++counts_.cache_hits;
        return;
    }
    if (use_stored({at, bytes}, hash)) { return; }
    const std::size_t num = resolve(at, bytes, hash);
    const std::uint32_t* out = out_.data() + out_num_;
    if (num > PieceCache::long_ids) { cache_.store({at, bytes}, hash, out, num); }
    else { PieceCache::put(set, words, out, num); }
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
void ByteBpeEncoder::uncached_piece(std::string_view piece, std::uint64_t hash)
{
    if (piece.empty()) { return; }
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
