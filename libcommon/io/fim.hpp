#pragma once
/// Fill in the middle: a piece of a document is rearranged so that its middle comes last, behind marks that say so. The rule, to the
/// bit: docs/data_order.md.

#include <cstdint>

#include "layout/run_config.hpp"

namespace plimsoll
{

/// Names a piece: the part of a document that lies in one sample.
struct FimPiece
{
    std::uint64_t seed = 0;     ///< of the source's order
    std::int64_t document = 0;  ///< in the source
    std::int64_t epoch = 0;     ///< of the source
    std::int64_t sample = 0;
};

/// Rearranges `num` tokens in place, or leaves them as they are. Documents are chosen whole, so all pieces of one in an epoch alike;
/// the cuts are drawn for each piece, between tokens. The three marks take the place of its last three tokens; a piece of
/// fewer than four is left.
void fill_in_the_middle(const Fim& fim, const FimPiece& piece, std::int64_t* tokens, std::int64_t num);

}  // namespace plimsoll
