#include "io/tokenizer/double_array.hpp"

#include <algorithm>

namespace plimsoll
{

/// Keys [first, last) share their first `depth` bytes, which lead to `node`.
struct DoubleArray::Range
{
    std::size_t first, last, depth;
    std::uint32_t node;
};

DoubleArray::DoubleArray(std::vector<std::pair<std::string_view, std::int32_t>> keys)
{
    if (keys.empty()) { return; }
    std::sort(keys.begin(), keys.end());
    grow(1024);
    cells_[root].parent = root;
    std::vector<Range> ranges = {{0, keys.size(), 0, root}};
    std::vector<unsigned char> bytes;
    while (!ranges.empty())
    {
        Range range = ranges.back();
        ranges.pop_back();
        if (keys[range.first].first.size() == range.depth) { cells_[range.node].value = keys[range.first++].second; }
        if (range.first == range.last) { continue; }
        const auto byte_at = [&](std::size_t i) { return static_cast<unsigned char>(keys[i].first[range.depth]); };
        bytes.clear();
        for (std::size_t i = range.first; i < range.last; ++i)
        {
            if (bytes.empty() || bytes.back() != byte_at(i)) { bytes.push_back(byte_at(i)); }
        }
        const std::uint32_t base = place(bytes);
        cells_[range.node].base = base;
        if (cells_.size() < std::size_t{base} + 257) { grow(std::max(cells_.size() * 2, std::size_t{base} + 257)); }
        used_end_ = std::max(used_end_, base + bytes.back() + 1U);
        for (std::size_t i = range.first, end = 0; i < range.last; i = end)
        {
            const std::uint32_t child = base + byte_at(i);
            cells_[child].parent = range.node;
            for (end = i + 1; end < range.last && byte_at(end) == byte_at(i);) { ++end; }
            ranges.push_back({i, end, range.depth + 1, child});
        }
    }
    // A step may look at any byte behind the last base; a leaf's base is 0, whose cells have other parents.
    free_ = {};
    cells_.resize(std::min<std::size_t>(cells_.size(), std::size_t{used_end_} + 257));
    cells_.shrink_to_fit();
}

void DoubleArray::grow(std::size_t cells)
{
    for (std::size_t cell = std::max<std::size_t>(cells_.size(), 1); cell < cells; ++cell)
    {
        free_.push_back(static_cast<std::uint32_t>(cell));
    }
    cells_.resize(cells);
}

std::uint32_t DoubleArray::place(const std::vector<unsigned char>& bytes)
{
    const auto is_free = [this](std::size_t cell) { return cells_[cell].parent == nowhere; };
    // A few tries among the holes, then fresh cells: the time stays linear, the array at most some times larger.
    constexpr std::size_t max_tries = 32;
    while (first_free_ < free_.size() && !is_free(free_[first_free_])) { ++first_free_; }
    std::size_t tries = 0;
    for (std::size_t i = first_free_; i < free_.size() && tries < max_tries; ++i)
    {
        const std::uint32_t cell = free_[i];
        if (!is_free(cell) || cell < bytes[0] + 1U) { continue; }
        ++tries;
        const std::uint32_t base = cell - bytes[0];
        const auto fits = [&](unsigned char b) { return std::size_t{base} + b >= cells_.size() || is_free(base + b); };
        if (std::all_of(bytes.begin(), bytes.end(), fits)) { return base; }
    }
    if (tries == max_tries) { first_free_ += max_tries / 4; }
    return used_end_;
}

DoubleArray::Match DoubleArray::longest(std::string_view text, std::size_t position) const
{
    Match match;
    if (cells_.empty()) { return match; }
    std::uint32_t node = root;
    for (std::size_t i = position; i < text.size(); ++i)
    {
        node = step(node, static_cast<unsigned char>(text[i]));
        if (node == nowhere) { break; }
        if (value(node) >= 0) { match = {i + 1 - position, value(node)}; }
    }
    return match;
}

}  // namespace plimsoll
