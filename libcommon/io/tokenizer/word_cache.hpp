#pragma once
/// Words and their ids, of one thread: a table of fixed size (4 MiB) whose older entries give way.

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

namespace plimsoll
{

class WordCache
{
  public:
    static constexpr std::size_t max_bytes = 35;
    static constexpr std::size_t max_ids = 6;

    struct Entry
    {
        std::uint32_t ids[max_ids];
        char text[max_bytes];
        std::uint8_t bytes;  ///< 0: free
        std::uint8_t num_ids;
        std::uint8_t num_unknown;
        std::uint8_t num_bytes_ids;  ///< ids of byte tokens among them
        std::uint8_t spare;
    };
    static_assert(sizeof(Entry) == 64);

    WordCache() : entries_(std::size_t{1} << bits) {}

    /// The place of a word of at most max_bytes: its entry, or one to fill (`bytes` 0). Valid until the next call. An entry's
    /// index says where to keep more about it.
    Entry& find(std::string_view word)
    {
        Entry* pair = &entries_[hash(word) >> (65 - bits) << 1];
        if (matches(pair[0], word)) { return pair[0]; }
        if (matches(pair[1], word)) { return pair[1]; }
        // Of the two that share the place either may go: which one alternates.
        Entry& entry = pair[turn_++ & 1U];
        entry.bytes = 0;
        return entry;
    }
    std::size_t index(const Entry& entry) const { return static_cast<std::size_t>(&entry - entries_.data()); }
    std::size_t size() const { return entries_.size(); }

    static void set_word(Entry& entry, std::string_view word)
    {
        std::memcpy(entry.text, word.data(), word.size());
        entry.bytes = static_cast<std::uint8_t>(word.size());
    }

  private:
    static constexpr unsigned bits = 16;

    static bool matches(const Entry& entry, std::string_view word)
    {
        return entry.bytes == word.size() && std::memcmp(entry.text, word.data(), word.size()) == 0;
    }

    template<class Number>
    static std::uint64_t load(const char* p)
    {
        Number value = 0;
        std::memcpy(&value, p, sizeof(value));
        return value;
    }

    static std::uint64_t hash(std::string_view word)
    {
        const char* p = word.data();
        const std::size_t n = word.size();
        std::uint64_t h = n * 0x9E3779B97F4A7C15ULL;
        if (n < 4)
        {
            return mix(
                h ^ (load<std::uint8_t>(p) | load<std::uint8_t>(p + n / 2) << 8 | load<std::uint8_t>(p + n - 1) << 16));
        }
        if (n < 8) { return mix(h ^ (load<std::uint32_t>(p) | load<std::uint32_t>(p + n - 4) << 32)); }
        for (std::size_t i = 0; i + 8 < n; i += 8) { h = mix(h ^ load<std::uint64_t>(p + i)); }
        return mix(h ^ load<std::uint64_t>(p + n - 8));
    }
    static std::uint64_t mix(std::uint64_t h)
    {
        h *= 0xD6E8FEB86659FD93ULL;
        return (h ^ h >> 32) * 0xD6E8FEB86659FD93ULL;
    }

    std::vector<Entry> entries_;
    unsigned turn_ = 0;
};

}  // namespace plimsoll
