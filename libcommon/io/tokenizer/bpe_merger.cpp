#include "io/tokenizer/bpe_merger.hpp"

#include <algorithm>
#include <bit>
#include <functional>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace plimsoll
{

namespace
{

// Keeps a value of merge_short within the normal floats, which sort as their bits do: SSE2 has a minimum of floats only.
constexpr std::uint32_t float_bias = 1U << 28;
constexpr std::uint32_t none_value = BpeTables::no_rank << 6 | float_bias;

inline std::uint32_t pair_value(std::uint32_t rank, std::size_t place)
{
    return (rank << 6 | float_bias) + static_cast<std::uint32_t>(place);
}

// The lowest of `num` biased values, a multiple of 16.
inline std::uint32_t lowest_of(const std::uint32_t* values, std::size_t num)
{
#if defined(__SSE2__)
    const auto* at = reinterpret_cast<const float*>(values);
    __m128 a = _mm_load_ps(at);
    __m128 b = _mm_load_ps(at + 4);
    __m128 c = _mm_load_ps(at + 8);
    __m128 d = _mm_load_ps(at + 12);
    for (std::size_t i = 16; i < num; i += 16)
    {
        a = _mm_min_ps(a, _mm_load_ps(at + i));
        b = _mm_min_ps(b, _mm_load_ps(at + i + 4));
        c = _mm_min_ps(c, _mm_load_ps(at + i + 8));
        d = _mm_min_ps(d, _mm_load_ps(at + i + 12));
    }
    a = _mm_min_ps(_mm_min_ps(a, b), _mm_min_ps(c, d));
    a = _mm_min_ps(a, _mm_movehl_ps(a, a));
    a = _mm_min_ps(a, _mm_shuffle_ps(a, a, 1));
    return static_cast<std::uint32_t>(_mm_cvtsi128_si32(_mm_castps_si128(a)));
#else
    return *std::min_element(values, values + num);
#endif
}

}  // namespace

// Bytes, of which those that merge whatever happens (most characters of two bytes) have merged already.
void BpeMerger::start_lane(const char* piece, std::size_t bytes, Lane& lane)
{
    const auto* p = reinterpret_cast<const unsigned char*>(piece);
    lane.num_pairs = (bytes + 15) & ~std::size_t{15};
    lane.alive = 0;
    lane.left_pair = no_pair;
    lane.right_pair = no_pair;
    for (std::size_t i = 0; i < lane.num_pairs; i += 4)
    {
        for (std::size_t k = 0; k < 4; ++k) { lane.pairs[i + k] = none_value; }
    }
    std::uint64_t wide = 0;  // merged ones
    for (std::size_t i = 0; i < bytes; ++i)
    {
        lane.alive |= std::uint64_t{1} << i;
        const bool merges = i + 1 < bytes &&
                            tables_.merges_first(i == 0 ? -1 : p[i - 1], p[i], p[i + 1], i + 2 < bytes ? p[i + 2] : -1);
        if (!merges)
        {
            lane.parts[i] = static_cast<std::uint32_t>(tables_.byte_id(p[i]));
            continue;
        }
        lane.parts[i] = tables_.merged_id(tables_.byte_pair_rank(p[i], p[i + 1]));
        wide |= std::uint64_t{1} << i++;
    }
    start_pairs(p, wide, lane);
}

// Two rounds, so that the look-ups go on side by side.
void BpeMerger::start_pairs(const unsigned char* piece, std::uint64_t wide, Lane& lane)
{
    std::uint64_t asked[max_short];
    std::size_t num_asked = 0;
    auto place = static_cast<std::size_t>(std::countr_zero(lane.alive));
    for (std::uint64_t left = lane.alive & (lane.alive - 1); left != 0; left &= left - 1)
    {
        const auto next = static_cast<std::size_t>(std::countr_zero(left));
        if (((wide >> place | wide >> next) & 1U) == 0)
        {
            lane.pairs[place] = pair_value(tables_.byte_pair_rank(piece[place], piece[next]), place);
        }
        else
        {
            const std::uint64_t pair = BpeTables::pair_key(lane.parts[place], lane.parts[next]);
            __builtin_prefetch(tables_.pair_place(pair));
            asked[num_asked++] = pair << 6 | place;
        }
        place = next;
    }
    for (std::size_t i = 0; i < num_asked; ++i)
    {
        lane.pairs[asked[i] & 63] = pair_value(tables_.pair_rank(asked[i] >> 6), asked[i] & 63);
    }
}

// The next merge; false where there is none. Only the step after it needs the ranks of the pairs that it makes.
bool BpeMerger::step_lane(Lane& lane)
{
    const auto answer = [&](std::uint64_t pair, std::size_t place)
    {
        if (pair != no_pair) { lane.pairs[place] = pair_value(tables_.pair_rank(pair), place); }
    };
    answer(lane.right_pair, lane.right_place);
    answer(lane.left_pair, lane.left_place);
    const std::uint32_t lowest = lowest_of(lane.pairs, lane.num_pairs);
    if (lowest >= none_value) { return false; }
    const std::size_t place = lowest & 63;
    const auto gone = static_cast<std::size_t>(std::countr_zero(lane.alive & ~std::uint64_t{1} << place));
    lane.alive &= ~(std::uint64_t{1} << gone);
    const std::uint32_t merged = tables_.merged_id((lowest ^ float_bias) >> 6);
    lane.parts[place] = merged;
    lane.pairs[gone] = none_value;
    lane.pairs[place] = none_value;
    lane.right_pair = no_pair;
    lane.left_pair = no_pair;
    const std::uint64_t behind = lane.alive & ~std::uint64_t{1} << place;
    if (behind != 0)
    {
        lane.right_place = place;
        lane.right_pair = BpeTables::pair_key(merged, lane.parts[std::countr_zero(behind)]);
        __builtin_prefetch(tables_.pair_place(lane.right_pair));
    }
    const std::uint64_t before = lane.alive & ((std::uint64_t{1} << place) - 1);
    if (before != 0)
    {
        lane.left_place = static_cast<std::size_t>(63 - std::countl_zero(before));
        lane.left_pair = BpeTables::pair_key(lane.parts[lane.left_place], merged);
        __builtin_prefetch(tables_.pair_place(lane.left_pair));
    }
    return true;
}

std::size_t BpeMerger::lane_ids(const Lane& lane, std::uint32_t* ids)
{
    std::size_t num_ids = 0;
    for (std::uint64_t alive = lane.alive; alive != 0; alive &= alive - 1)
    {
        ids[num_ids++] = lane.parts[std::countr_zero(alive)];
    }
    return num_ids;
}

const BpeMerger::Lane& BpeMerger::merge_lane(const char* piece, std::size_t bytes)
{
    start_lane(piece, bytes, lanes_[0]);
    while (step_lane(lanes_[0])) {}
    return lanes_[0];
}

std::size_t BpeMerger::merge_short(const char* piece, std::size_t bytes, std::uint32_t* ids)
{
    return lane_ids(merge_lane(piece, bytes), ids);
}

void BpeMerger::merge_all(Job* jobs, std::size_t num)
{
    std::size_t next = 0;
    std::size_t num_busy = 0;
    Lane* busy[num_lanes];
    const auto start = [&](Lane& lane)
    {
        lane.job = &jobs[next++];
        start_lane(lane.job->piece, lane.job->bytes, lane);
    };
    for (; num_busy < num_lanes && next < num; ++num_busy)
    {
        busy[num_busy] = &lanes_[num_busy];
        start(lanes_[num_busy]);
    }
    while (num_busy > 0)
    {
        for (std::size_t i = 0; i < num_busy; ++i)
        {
            Lane& lane = *busy[i];
            if (step_lane(lane)) { continue; }
            lane.job->num_ids = lane_ids(lane, lane.job->ids);
            if (next < num) { start(lane); }
            else { busy[i--] = busy[--num_busy]; }
        }
    }
}

// Bytes to parts; those without an id are unknown or left out. Returns how many unknown ids.
std::int64_t BpeMerger::start_parts(std::string_view piece)
{
    const BpeDefinition& definition = tables_.definition();
    parts_.clear();
    parts_.reserve(piece.size());
    std::int64_t num_unknown = 0;
    bool after_unknown = false;
    for (const char byte : piece)
    {
        const std::int64_t id = definition.byte_ids[static_cast<unsigned char>(byte)];
        const bool is_unknown = id < 0;
        if (is_unknown && (definition.unk_id < 0 || (after_unknown && definition.fuse_unk))) { continue; }
        after_unknown = is_unknown;
        num_unknown += is_unknown ? 1 : 0;
        const auto place = static_cast<std::int64_t>(parts_.size());
        parts_.push_back({place - 1, place + 1, static_cast<std::uint32_t>(is_unknown ? definition.unk_id : id),
                          BpeTables::no_rank});
    }
    if (!parts_.empty()) { parts_.back().next = none; }
    return num_unknown;
}

std::int64_t BpeMerger::merge(std::string_view piece, std::vector<std::uint32_t>& ids)
{
    if (tables_.has_all_bytes() && !piece.empty())
    {
        const std::size_t begin = ids.size();
        if (piece.size() <= max_short)
        {
            ids.resize(begin + piece.size());
            ids.resize(begin + merge_short(piece.data(), piece.size(), ids.data() + begin));
            return 0;
        }
        for (const std::size_t bytes : {max_short, wide_bytes})
        {
            if (merge_windows(piece, bytes, ids)) { return 0; }
            ids.resize(begin);
        }
    }
    return merge_whole(piece, ids);
}

std::int64_t BpeMerger::merge_whole(std::string_view piece, std::vector<std::uint32_t>& ids)
{
    const std::int64_t num_unknown = start_parts(piece);
    if (parts_.empty()) { return num_unknown; }
    merge_long();
    for (std::int64_t place = 0; place != none; place = parts_[static_cast<std::size_t>(place)].next)
    {
        ids.push_back(parts_[static_cast<std::size_t>(place)].id);
    }
    return num_unknown;
}

// Ids of a window alone. A window of the same bytes as `known` has the same: what runs of one character consist of.
void BpeMerger::merge_window(std::string_view piece, std::size_t begin, std::size_t bytes, const Window& known,
                             Window& window)
{
    window.begin = begin;
    window.end = std::min(begin + bytes, piece.size());
    window.first = 0;
    window.tokens.clear();
    const std::string_view text = piece.substr(begin, window.end - begin);
    if (piece.substr(known.begin, known.end - known.begin) == text)
    {
        for (const Token& token : known.tokens)
        {
            window.tokens.push_back({token.begin - known.begin + begin, token.id});
        }
        return;
    }
    if (text.size() <= max_short)
    {
        const Lane& lane = merge_lane(text.data(), text.size());
        for (std::uint64_t alive = lane.alive; alive != 0; alive &= alive - 1)
        {
            const auto place = static_cast<std::size_t>(std::countr_zero(alive));
            window.tokens.push_back({begin + place, lane.parts[place]});
        }
        return;
    }
    start_parts(text);
    merge_long();
    for (std::int64_t place = 0; place != none; place = parts_[static_cast<std::size_t>(place)].next)
    {
        const auto at = static_cast<std::size_t>(place);
        window.tokens.push_back({begin + at, parts_[at].id});
    }
}

// Continues window_ by one that begins at its token `from`. False where they share no token, or go on by too little.
bool BpeMerger::join_window(std::string_view piece, std::size_t from, std::size_t bytes,
                            std::vector<std::uint32_t>& ids)
{
    const std::size_t begin = window_.tokens[from].begin;
    if (std::min(begin + bytes, piece.size()) < std::min(window_.end + bytes / 4, piece.size())) { return false; }
    merge_window(piece, begin, bytes, window_, next_);
    std::size_t i = from;
    std::size_t k = 0;
    while (i < window_.tokens.size() && k < next_.tokens.size())
    {
        const Token& left = window_.tokens[i];
        const Token& right = next_.tokens[k];
        if (left.begin == right.begin && left.id == right.id)
        {
            for (std::size_t n = window_.first; n < i; ++n) { ids.push_back(window_.tokens[n].id); }
            next_.first = k;
            std::swap(window_, next_);
            return true;
        }
        i += left.begin <= right.begin ? 1 : 0;
        k += right.begin <= left.begin ? 1 : 0;
    }
    return false;
}

// Whether a text's ids are t1 t2 ... tn depends on neighbours only: each ti must be what its bytes merge to, and each ti ti+1 what
// their bytes merge to. (Else look at the first merge across a border: until then both sides went their own way, and the same merge
// comes when the two tokens stand alone.) So the ids of two windows that overlap are those of both together where they share a
// token. False where some do not, as with tokens longer than a window; `ids` then has more than before and none that counts.
bool BpeMerger::merge_windows(std::string_view piece, std::size_t bytes, std::vector<std::uint32_t>& ids)
{
    window_ = Window();
    next_.tokens.clear();
    merge_window(piece, 0, bytes, Window(), window_);
    while (window_.end < piece.size())
    {
        const std::size_t num = window_.tokens.size();
        const std::size_t first = window_.first;
        std::size_t tail = num;
        while (tail > first && (num - tail < 3 || window_.end - window_.tokens[tail].begin < overlap_bytes)) { --tail; }
        const std::size_t middle = first + (num - first) / 2;
        if (bytes < wide_bytes && join_window(piece, tail, bytes, ids)) { continue; }
        if (join_window(piece, tail, wide_bytes, ids) || join_window(piece, middle, wide_bytes, ids) ||
            join_window(piece, first, wide_bytes, ids))
        {
            continue;
        }
        return false;
    }
    for (std::size_t i = window_.first; i < window_.tokens.size(); ++i) { ids.push_back(window_.tokens[i].id); }
    return true;
}

std::size_t BpeMerger::take_bucket(std::uint32_t rank)
{
    std::size_t index = buckets_.size();
    if (free_buckets_.empty()) { buckets_.emplace_back(); }
    else
    {
        index = free_buckets_.back();
        free_buckets_.pop_back();
    }
    bucket_of_[rank] = static_cast<std::uint32_t>(index) + 1;
    Bucket& bucket = buckets_[index];
    bucket.rank = rank;
    bucket.head = 0;
    bucket.is_sorted = true;
    bucket.places.clear();
    heap_.push_back(rank);
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
    return index;
}

void BpeMerger::push(std::uint32_t rank, std::int64_t place)
{
    const std::uint32_t known = bucket_of_[rank];
    Bucket& bucket = buckets_[known != 0 ? known - 1 : take_bucket(rank)];
    bucket.is_sorted = bucket.is_sorted && (bucket.places.empty() || bucket.places.back() < place);
    bucket.places.push_back(place);
}

// Looks at the pair that begins at `place` anew.
void BpeMerger::set_pair(std::int64_t place, std::uint32_t current)
{
    Part& part = parts_[static_cast<std::size_t>(place)];
    part.rank = part.next == none ? BpeTables::no_rank
                                  : tables_.pair_rank(part.id, parts_[static_cast<std::size_t>(part.next)].id);
    if (part.rank == BpeTables::no_rank) { return; }
    push(part.rank, place);
    found_lower_ = found_lower_ || part.rank < current;
}

void BpeMerger::merge_long()
{
    bucket_of_.resize(static_cast<std::size_t>(tables_.num_ranks()));
    const auto num = static_cast<std::int64_t>(parts_.size());
    for (std::int64_t place = 0; place + 1 < num; ++place) { set_pair(place, 0); }
    while (!heap_.empty())
    {
        std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
        const std::uint32_t rank = heap_.back();
        heap_.pop_back();
        merge_bucket(bucket_of_[rank] - 1);
    }
}

// Merges at the bucket's places from left to right, until there are none or a pair of a lower rank came up. A merge never makes a
// pair of its own rank, since the bytes of what it makes are longer.
void BpeMerger::merge_bucket(std::size_t index)
{
    {
        Bucket& bucket = buckets_[index];
        if (!bucket.is_sorted)
        {
            std::sort(bucket.places.begin() + static_cast<std::ptrdiff_t>(bucket.head), bucket.places.end());
            bucket.is_sorted = true;
        }
    }
    const std::uint32_t rank = buckets_[index].rank;
    const std::uint32_t merged = tables_.merged_id(rank);
    found_lower_ = false;
    while (buckets_[index].head < buckets_[index].places.size())
    {
        const std::int64_t place = buckets_[index].places[buckets_[index].head++];
        Part& part = parts_[static_cast<std::size_t>(place)];
        if (part.rank != rank) { continue; }
        const std::int64_t gone = part.next;
        part.id = merged;
        part.next = parts_[static_cast<std::size_t>(gone)].next;
        parts_[static_cast<std::size_t>(gone)].rank = BpeTables::no_rank;
        if (part.next != none) { parts_[static_cast<std::size_t>(part.next)].previous = place; }
        set_pair(place, rank);
        if (part.previous != none) { set_pair(part.previous, rank); }
        if (found_lower_)
        {
            heap_.push_back(rank);
            std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
            return;
        }
    }
    bucket_of_[rank] = 0;
    free_buckets_.push_back(index);
}

}  // namespace plimsoll
