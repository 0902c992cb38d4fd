#pragma once
/// A trie of byte strings as a double array: one load for each byte of a look-up.

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace plimsoll
{

class DoubleArray
{
  public:
    DoubleArray() = default;
    /// Keys with their values (>= 0); keys are unique and not empty. Time is linear in their bytes.
    explicit DoubleArray(std::vector<std::pair<std::string_view, std::int32_t>> keys);

    bool empty() const { return cells_.empty(); }
    static constexpr std::uint32_t root = 0;
    static constexpr std::uint32_t nowhere = UINT32_MAX;

    std::uint32_t step(std::uint32_t node, unsigned char byte) const
    {
        const std::uint32_t next = cells_[node].base + byte;
        return cells_[next].parent == node ? next : nowhere;
    }
    /// Value of the key that ends at this node; -1 where none does.
    std::int32_t value(std::uint32_t node) const { return cells_[node].value; }

    struct Match
    {
        std::size_t length = 0;  ///< 0: none
        std::int32_t value = -1;
    };
    /// The longest key that `text` starts with from `position` on.
    Match longest(std::string_view text, std::size_t position) const;

  private:
    struct Cell
    {
        std::uint32_t base = 0;
        std::uint32_t parent = nowhere;
        std::int32_t value = -1;
    };
    struct Range;
    std::uint32_t place(const std::vector<unsigned char>& bytes);
    void grow(std::size_t cells);

    std::vector<Cell> cells_;
    std::vector<std::uint32_t> free_;  ///< while building: candidates for a base, oldest first
    std::size_t first_free_ = 0;
    std::uint32_t used_end_ = 1;  ///< cells from here on are free
};

}  // namespace plimsoll
