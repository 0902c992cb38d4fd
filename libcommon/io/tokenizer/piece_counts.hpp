#pragma once
/// How often each distinct piece of text was met. Memory: the distinct pieces' bytes and 40 bytes each.

#include <cstdint>
#include <string_view>
#include <vector>

namespace plimsoll
{

/// Of one thread.
class PieceCounts
{
  public:
    PieceCounts();
    void add(std::string_view piece, std::int64_t count = 1);
    void add(const PieceCounts& other);

    struct Row
    {
        std::string_view piece;  ///< valid while the table lives and nothing is added
        std::int64_t count;
    };
    /// Sorted by bytes, so that their order depends on no thread.
    std::vector<Row> sorted() const;
    std::int64_t num() const { return static_cast<std::int64_t>(entries_.size()); }
    std::int64_t total() const { return total_; }
    std::int64_t memory_bytes() const;

  private:
    struct Entry
    {
        std::uint64_t hash;
        std::uint64_t begin;  ///< in bytes_
        std::uint32_t size;
        std::int64_t count;
    };
    std::string_view text_of(const Entry& entry) const { return {bytes_.data() + entry.begin, entry.size}; }
    void grow();

    std::vector<char> bytes_;
    std::vector<Entry> entries_;
    std::vector<std::uint32_t> slots_;  ///< open addressing, index of the entry + 1
    std::int64_t total_ = 0;
};

}  // namespace plimsoll
