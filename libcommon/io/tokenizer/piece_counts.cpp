#include "io/tokenizer/piece_counts.hpp"

#include <algorithm>
#include <limits>

#include "base/error.hpp"
#include "io/tokenizer/piece_hash.hpp"

namespace plimsoll
{

PieceCounts::PieceCounts() : slots_(1 << 12) {}

void PieceCounts::add(std::string_view piece, std::int64_t count)
{
    VALIDATE(piece.size() < std::numeric_limits<std::uint32_t>::max(), FormatError,
             "a piece of {} bytes (longer than 4 GiB) cannot be counted. choose a pattern that splits the text",
             piece.size());
    if (2 * entries_.size() >= slots_.size()) { grow(); }
    const std::uint64_t hash = hash_piece(piece);
    total_ += count;
    for (std::size_t slot = hash >> 20 & (slots_.size() - 1);; slot = (slot + 1) & (slots_.size() - 1))
    {
        if (slots_[slot] == 0)
        {
            ENSURE(entries_.size() < std::numeric_limits<std::uint32_t>::max());
            entries_.push_back({hash, bytes_.size(), static_cast<std::uint32_t>(piece.size()), count});
            bytes_.insert(bytes_.end(), piece.begin(), piece.end());
            slots_[slot] = static_cast<std::uint32_t>(entries_.size());
            return;
        }
        Entry& entry = entries_[slots_[slot] - 1];
        if (entry.hash == hash && text_of(entry) == piece)
        {
            entry.count += count;
            return;
        }
    }
}

void PieceCounts::grow()
{
    std::vector<std::uint32_t> slots(2 * slots_.size());
    for (std::size_t i = 0; i < entries_.size(); ++i)
    {
        std::size_t slot = entries_[i].hash >> 20 & (slots.size() - 1);
        while (slots[slot] != 0) { slot = (slot + 1) & (slots.size() - 1); }
        slots[slot] = static_cast<std::uint32_t>(i + 1);
    }
    slots_.swap(slots);
}

void PieceCounts::add(const PieceCounts& other)
{
    for (const Entry& entry : other.entries_) { add(other.text_of(entry), entry.count); }
}

std::vector<PieceCounts::Row> PieceCounts::sorted() const
{
    std::vector<Row> rows;
    rows.reserve(entries_.size());
    for (const Entry& entry : entries_) { rows.push_back({text_of(entry), entry.count}); }
    std::sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) { return a.piece < b.piece; });
    return rows;
}

std::int64_t PieceCounts::memory_bytes() const
{
    return static_cast<std::int64_t>(bytes_.capacity() + entries_.capacity() * sizeof(Entry) +
                                     slots_.capacity() * sizeof(std::uint32_t));
}

}  // namespace plimsoll
