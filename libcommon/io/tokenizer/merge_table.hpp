#pragma once
/// Pairs of symbols that merge, and merging: the pair with the lowest rank first, of equal ones the leftmost.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

namespace plimsoll
{

struct Merge
{
    static constexpr std::uint32_t never = UINT32_MAX;
    std::uint32_t symbol = never;  ///< what the pair becomes
    std::uint32_t rank = never;    ///< lower ones first; never: the pair does not merge
};

class MergeTable
{
  public:
    /// At most `num_merges` calls of add() follow.
    explicit MergeTable(std::size_t num_merges = 0);

    /// Replaces an earlier merge of the same pair.
    void add(std::uint32_t left, std::uint32_t right, Merge merge);

    Merge find(std::uint32_t left, std::uint32_t right) const
    {
        const std::uint64_t key = std::uint64_t{left} << 32 | right;
        for (std::size_t at = slot_of(key);; at = (at + 1) & mask_)
        {
            if (slots_[at].key == key) { return slots_[at].merge; }
            if (slots_[at].key == empty_key) { return {}; }
        }
    }

  private:
    static constexpr std::uint64_t empty_key = UINT64_MAX;
    struct Slot
    {
        std::uint64_t key = empty_key;
        Merge merge;
    };
    std::size_t slot_of(std::uint64_t key) const
    {
        return static_cast<std::size_t>((key ^ key >> 29) * 0x9E3779B97F4A7C15ULL >> shift_);
    }

    std::vector<Slot> slots_;
    std::size_t mask_ = 0;
    unsigned shift_ = 0;
};

/// A stretch of text during merging.
struct Symbol
{
    static constexpr std::uint32_t none = UINT32_MAX;  ///< merges with nothing
    std::uint32_t id = none;
    std::uint32_t bytes = 0;
};

/// Scratch of one thread; grows with the longest stretch.
class Merger
{
  public:
    /// Merges `symbols` as far as the table goes. Short stretches by looking for the best pair again and again, long ones
    /// by a heap: n log n. `seen(merge, left, right)` is called for each pair that could merge, when it comes up.
    template<class Seen>
    void merge(const MergeTable& table, std::vector<Symbol>& symbols, Seen&& seen)
    {
        if (symbols.size() < 2) { return; }
        if (symbols.size() <= max_scan) { merge_short(table, symbols, seen); }
        else { merge_long(table, symbols, seen); }
    }
    void merge(const MergeTable& table, std::vector<Symbol>& symbols)
    {
        merge(table, symbols, [](const Merge&, std::uint32_t, std::uint32_t) {});
    }

  private:
    static constexpr std::size_t max_scan = 40;
    static constexpr std::uint32_t end = UINT32_MAX;

    template<class Seen>
    static Merge look(const MergeTable& table, const Symbol& left, const Symbol& right, Seen&& seen)
    {
        if (left.id == Symbol::none || right.id == Symbol::none) { return {}; }
        const Merge merge = table.find(left.id, right.id);
        if (merge.rank != Merge::never) { seen(merge, left.id, right.id); }
        return merge;
    }

    template<class Seen>
    void merge_short(const MergeTable& table, std::vector<Symbol>& symbols, Seen&& seen);
    template<class Seen>
    void merge_long(const MergeTable& table, std::vector<Symbol>& symbols, Seen&& seen);

    struct Node
    {
        Symbol symbol;
        Merge merge;  ///< with the next one
        std::uint32_t previous = end;
        std::uint32_t next = end;
    };
    std::vector<Node> nodes_;
    std::vector<std::uint64_t> heap_;  ///< rank << 32 | left
};

template<class Seen>
void Merger::merge_short(const MergeTable& table, std::vector<Symbol>& symbols, Seen&& seen)
{
    std::size_t num = symbols.size();
    Merge merges[max_scan];
    for (std::size_t i = 0; i + 1 < num; ++i) { merges[i] = look(table, symbols[i], symbols[i + 1], seen); }
    while (num > 1)
    {
        std::size_t best = 0;
        for (std::size_t i = 1; i + 1 < num; ++i)
        {
            if (merges[i].rank < merges[best].rank) { best = i; }
        }
        if (merges[best].rank == Merge::never) { break; }
        symbols[best] = {merges[best].symbol, symbols[best].bytes + symbols[best + 1].bytes};
        for (std::size_t i = best + 1; i + 1 < num; ++i)
        {
            symbols[i] = symbols[i + 1];
            merges[i] = merges[i + 1];
        }
        --num;
        if (best > 0) { merges[best - 1] = look(table, symbols[best - 1], symbols[best], seen); }
        if (best + 1 < num) { merges[best] = look(table, symbols[best], symbols[best + 1], seen); }
    }
    symbols.resize(num);
}

template<class Seen>
void Merger::merge_long(const MergeTable& table, std::vector<Symbol>& symbols, Seen&& seen)
{
    const auto num = static_cast<std::uint32_t>(symbols.size());
    nodes_.resize(num);
    heap_.clear();
    const auto push = [this](std::uint32_t left)
    {
        if (nodes_[left].merge.rank == Merge::never) { return; }
        heap_.push_back(std::uint64_t{nodes_[left].merge.rank} << 32 | left);
        std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
    };
    for (std::uint32_t i = 0; i < num; ++i)
    {
        const bool last = i + 1 == num;
        nodes_[i] = {symbols[i], last ? Merge{} : look(table, symbols[i], symbols[i + 1], seen), i == 0 ? end : i - 1,
                     last ? end : i + 1};
        if (nodes_[i].merge.rank != Merge::never) { heap_.push_back(std::uint64_t{nodes_[i].merge.rank} << 32 | i); }
    }
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
    while (!heap_.empty())
    {
        std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
        const auto at = static_cast<std::uint32_t>(heap_.back());
        const auto rank = static_cast<std::uint32_t>(heap_.back() >> 32);
        heap_.pop_back();
        Node& node = nodes_[at];
        if (node.merge.rank != rank) { continue; }  // what it spoke of has merged otherwise
        Node& gone = nodes_[node.next];
        node.symbol = {node.merge.symbol, node.symbol.bytes + gone.symbol.bytes};
        gone.merge = {};
        node.next = gone.next;
        if (node.next != end) { nodes_[node.next].previous = at; }
        if (node.previous != end)
        {
            nodes_[node.previous].merge = look(table, nodes_[node.previous].symbol, node.symbol, seen);
            push(node.previous);
        }
        node.merge = node.next == end ? Merge{} : look(table, node.symbol, nodes_[node.next].symbol, seen);
        push(at);
    }
    symbols.clear();
    for (std::uint32_t at = 0; at != end; at = nodes_[at].next) { symbols.push_back(nodes_[at].symbol); }
}

}  // namespace plimsoll
