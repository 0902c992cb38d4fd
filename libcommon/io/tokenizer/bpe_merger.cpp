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

// The lowest of `num` values (a multiple of 4), each below 2^31.
inline std::uint32_t lowest_of(const std::uint32_t* values, std::size_t num)
{
#if defined(__SSE2__)
    __m128i lowest = _mm_load_si128(reinterpret_cast<const __m128i*>(values));
    for (std::size_t i = 4; i < num; i += 4)
    {
        const __m128i more = _mm_load_si128(reinterpret_cast<const __m128i*>(values + i));
        const __m128i greater = _mm_cmpgt_epi32(lowest, more);
        lowest = _mm_or_si128(_mm_and_si128(greater, more), _mm_andnot_si128(greater, lowest));
    }
    alignas(16) std::uint32_t four[4];
    _mm_store_si128(reinterpret_cast<__m128i*>(four), lowest);
    return std::min(std::min(four[0], four[1]), std::min(four[2], four[3]));
#else
    return *std::min_element(values, values + num);
#endif
}

}  // namespace

// Parts stay where they began and live in a mask; a pair is its rank << 6 | place, so that the lowest value is the leftmost of the
// lowest rank.
std::size_t BpeMerger::merge_short(const char* piece, std::size_t bytes, std::uint32_t* ids) const
{
    constexpr std::uint32_t none_value = BpeTables::no_rank << 6;
    alignas(16) std::uint32_t pairs[max_short];
    std::uint32_t parts[max_short];
    const auto* p = reinterpret_cast<const unsigned char*>(piece);
    const std::size_t num = (bytes + 3) & ~std::size_t{3};
    for (std::size_t i = 0; i + 1 < bytes; ++i)
    {
        pairs[i] = tables_.byte_pair_rank(p[i], p[i + 1]) << 6 | static_cast<std::uint32_t>(i);
    }
    for (std::size_t i = bytes - 1; i < num; ++i) { pairs[i] = none_value; }
    for (std::size_t i = 0; i < bytes; ++i) { parts[i] = static_cast<std::uint32_t>(tables_.byte_id(p[i])); }
    std::uint64_t alive = bytes == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << bytes) - 1;
    const auto pair_at = [&](std::size_t left, std::size_t right)
    { return tables_.pair_rank(parts[left], parts[right]) << 6 | static_cast<std::uint32_t>(left); };
    for (;;)
    {
        const std::uint32_t lowest = lowest_of(pairs, num);
        if (lowest >= none_value) { break; }
        const std::size_t place = lowest & 63;
        const auto gone = static_cast<std::size_t>(std::countr_zero(alive & ~std::uint64_t{1} << place));
        alive &= ~(std::uint64_t{1} << gone);
        parts[place] = tables_.merged_id(lowest >> 6);
        pairs[gone] = none_value;
        const std::uint64_t behind = alive & ~std::uint64_t{1} << place;
        pairs[place] = behind == 0 ? none_value : pair_at(place, static_cast<std::size_t>(std::countr_zero(behind)));
        const std::uint64_t before = alive & ((std::uint64_t{1} << place) - 1);
        if (before != 0)
        {
            const auto left = static_cast<std::size_t>(63 - std::countl_zero(before));
            pairs[left] = pair_at(left, place);
        }
    }
    std::size_t num_ids = 0;
    for (; alive != 0; alive &= alive - 1) { ids[num_ids++] = parts[std::countr_zero(alive)]; }
    return num_ids;
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
    if (piece.size() <= max_short && tables_.has_all_bytes())
    {
        const std::size_t begin = ids.size();
        ids.resize(begin + piece.size());
        ids.resize(begin + merge_short(piece.data(), piece.size(), ids.data() + begin));
        return 0;
    }
    const std::int64_t num_unknown = start_parts(piece);
    if (parts_.empty()) { return num_unknown; }
    merge_long();
    for (std::int64_t place = 0; place != none; place = parts_[static_cast<std::size_t>(place)].next)
    {
        ids.push_back(parts_[static_cast<std::size_t>(place)].id);
    }
    return num_unknown;
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
