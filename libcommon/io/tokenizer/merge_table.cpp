#include "io/tokenizer/merge_table.hpp"

#include <bit>

namespace plimsoll
{

MergeTable::MergeTable(std::size_t num_merges)
{
    const std::size_t slots = std::bit_ceil(std::max<std::size_t>(num_merges * 2, 2));
    slots_.resize(slots);
    mask_ = slots - 1;
    shift_ = 64U - static_cast<unsigned>(std::bit_width(slots) - 1);
}

void MergeTable::add(std::uint32_t left, std::uint32_t right, Merge merge)
{
    const std::uint64_t key = std::uint64_t{left} << 32 | right;
    std::size_t at = slot_of(key);
    while (slots_[at].key != key && slots_[at].key != empty_key) { at = (at + 1) & mask_; }
    slots_[at] = {key, merge};
}

}  // namespace plimsoll
