#pragma once
/// What a step reads of its data.

#include <cstdint>
#include <vector>

namespace plimsoll
{

/// Inputs, labels and weights of `num` sequences, row-major [num, seq_len].
struct TokenBatch
{
    std::int64_t num = 0;
    std::int64_t seq_len = 0;
    std::vector<std::int64_t> inputs;
    std::vector<std::int64_t> labels;
    std::vector<std::uint8_t> mask;  ///< 1 where the label counts
    std::int64_t num_valid = 0;      ///< sum of mask
    /// With document masks: places in `inputs` where a document, the rest of one, or padding begins, ascending, and their end num * seq_len
    /// (cu_seqlens of other systems). Each sequence begins anew. Without document masks empty. At most 8 bytes for each token.
    std::vector<std::int64_t> document_starts;
};

}  // namespace plimsoll
