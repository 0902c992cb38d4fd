#include "io/dedup/key_groups.hpp"

#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/error.hpp"
#include "base/units.hpp"
#include "io/file.hpp"

namespace plimsoll
{

namespace
{

struct KeyEntry
{
    DedupKey key;
    std::int64_t item = 0;
};

constexpr std::int64_t key_buffer_entries = 682;  ///< 16 KiB
/// A key in a table that just doubled at a load of 0.7, with the half of it that is being moved: 24 x (2 + 1) / 0.7.
constexpr std::int64_t key_table_bytes = 104;
constexpr std::int64_t max_key_parts = 4096;
constexpr std::int64_t key_part_bytes = key_buffer_entries * static_cast<std::int64_t>(sizeof(KeyEntry));

/// The first item of each key. Grows with the number of different keys.
class FirstItems
{
  public:
    FirstItems() : entries_(1 << 10) {}

    /// The item that had the key first: `item` itself when it is new.
    std::int64_t insert(const DedupKey& key, std::int64_t item)
    {
        if (10 * (used_ + 1) > 7 * entries_.size()) { grow(); }
        KeyEntry& entry = place(entries_, key);
        if (entry.item != 0) { return entry.item - 1; }
        entry = {key, item + 1};
        ++used_;
        return item;
    }

  private:
    /// Zero marks a free place: items are kept one higher.
    static KeyEntry& place(std::vector<KeyEntry>& entries, const DedupKey& key)
    {
        std::size_t at = key.low & (entries.size() - 1);
        while (entries[at].item != 0 && !(entries[at].key == key)) { at = (at + 1) & (entries.size() - 1); }
        return entries[at];
    }

    void grow()
    {
        std::vector<KeyEntry> larger(entries_.size() * 2);
        for (const KeyEntry& entry : entries_)
        {
            if (entry.item != 0) { place(larger, entry.key) = entry; }
        }
        entries_ = std::move(larger);
    }

    std::vector<KeyEntry> entries_;
    std::size_t used_ = 0;
};

std::int64_t parts_for(std::int64_t num_keys, std::int64_t memory)
{
    for (std::int64_t parts = 1; parts <= max_key_parts; parts *= 2)
    {
        // With 1/8 on top: shares of keys by hash are not all equal.
        const std::int64_t table = (num_keys / parts + 1) * key_table_bytes * 9 / 8;
        const std::int64_t buffers = parts == 1 ? 0 : parts * key_part_bytes;
        if (std::max(table, buffers) + 2 * key_part_bytes <= memory) { return parts; }
    }
    return 0;
}

}  // namespace

/// A share of the keys.
struct KeyGroups::Part
{
    std::optional<File> file;
    std::vector<KeyEntry> buffer;
    std::int64_t written = 0;  ///< entries

    void flush()
    {
        if (buffer.empty()) { return; }
        const auto bytes = static_cast<std::int64_t>(buffer.size() * sizeof(KeyEntry));
        file->write_at(buffer.data(), bytes, written * static_cast<std::int64_t>(sizeof(KeyEntry)));
        written += static_cast<std::int64_t>(buffer.size());
        buffer.clear();
    }
};

std::int64_t KeyGroups::least_memory(std::int64_t num_keys)
{
    std::int64_t least = 2 * key_part_bytes + key_table_bytes * 9 / 8;
    while (parts_for(num_keys, least) == 0) { least += std::max<std::int64_t>(least / 16, 1 << 16); }
    return least;
}

KeyGroups::KeyGroups(std::string directory, std::int64_t num_keys, std::int64_t memory_bytes)
{
    const std::int64_t parts = parts_for(num_keys, memory_bytes);
    VALIDATE(parts > 0, ConfigError, "{} are not enough for {} keys (at least {})",
             format_memory(static_cast<double>(memory_bytes)), format_grouped(num_keys),
             format_memory(static_cast<double>(least_memory(num_keys))));
    shift_ = 64;
    for (std::int64_t i = 1; i < parts; i *= 2) { --shift_; }
    for (std::int64_t i = 0; i < parts; ++i)
    {
        parts_.push_back(std::make_unique<Part>());
        const std::string path = fmt::format("{}/keys.{:04}.tmp", directory, i);
        parts_.back()->file.emplace(path, File::Mode::create);
        ::unlink(path.c_str());
        parts_.back()->buffer.reserve(key_buffer_entries);
    }
}

KeyGroups::~KeyGroups() = default;

void KeyGroups::add(const DedupKey& key, std::int64_t item)
{
    // All bits of `high` but those that choose the part are free for it; the table uses `low`.
    Part& part = *parts_[shift_ == 64 ? 0 : key.high >> shift_];
    part.buffer.push_back({key, item});
    if (static_cast<std::int64_t>(part.buffer.size()) == key_buffer_entries) { part.flush(); }
}

void KeyGroups::for_each(const std::function<void(std::int64_t first, std::int64_t item)>& found)
{
    for (const auto& part : parts_)
    {
        part->flush();
        part->buffer = {};
    }
    std::vector<KeyEntry> window(key_buffer_entries);
    for (const auto& part : parts_)
    {
        FirstItems first;
        for (std::int64_t done = 0; done < part->written;)
        {
            const std::int64_t num = std::min(key_buffer_entries, part->written - done);
            constexpr auto width = static_cast<std::int64_t>(sizeof(KeyEntry));
            part->file->read_at(window.data(), num * width, done * width);
            for (std::int64_t i = 0; i < num; ++i)
            {
                const KeyEntry& entry = window[static_cast<std::size_t>(i)];
                const std::int64_t earlier = first.insert(entry.key, entry.item);
                if (earlier != entry.item) { found(earlier, entry.item); }
            }
            done += num;
        }
        part->file.reset();
    }
}

Clusters::Clusters(std::int64_t num) : parents_(static_cast<std::size_t>(num))
{
    std::iota(parents_.begin(), parents_.end(), std::int64_t{0});
}

std::int64_t Clusters::root(std::int64_t item)
{
    auto at = static_cast<std::size_t>(item);
    while (parents_[at] != static_cast<std::int64_t>(at))
    {
        parents_[at] = parents_[static_cast<std::size_t>(parents_[at])];
        at = static_cast<std::size_t>(parents_[at]);
    }
    return static_cast<std::int64_t>(at);
}

void Clusters::join(std::int64_t a, std::int64_t b)
{
    const std::int64_t one = root(a);
    const std::int64_t two = root(b);
    parents_[static_cast<std::size_t>(std::max(one, two))] = std::min(one, two);
}

}  // namespace plimsoll
