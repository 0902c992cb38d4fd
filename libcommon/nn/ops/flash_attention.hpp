#pragma once
/// ATen's causal flash attention over a batch: within sequences, or with document masks within documents (docs/adr/0025).
///
/// Shapes as in attention.hpp. A document is computed on views of its tokens alone, straight into its part of the results: no
/// S x S mask, no work across documents, no memory beside that of the whole (on x86-64; else a copy of one document).

#include <vector>

#include "nn/op_context.hpp"

namespace plimsoll::nn
{

/// What the kernel reads, views of a [N, columns] buffer.
struct FlashHeads
{
    at::Tensor q_BHSE;
    at::Tensor k_BKSE;
    at::Tensor v_BKSE;
};

struct FlashForward
{
    at::Tensor out_BHSE;
    at::Tensor lse_BHS;
};

/// @pre `starts` is TokenBatch::document_starts of these B S tokens, or null
FlashForward flash_attention(const FlashHeads& heads, const std::vector<std::int64_t>* starts);

struct FlashGradients
{
    // Members end last to first: dq is freed first, as the plan has it.
    at::Tensor dv_BKSE;
    at::Tensor dk_BKSE;
    at::Tensor dq_BHSE;
};

FlashGradients flash_attention_backward(const at::Tensor& dout_BHSE, const FlashHeads& heads, const FlashForward& made,
                                        const std::vector<std::int64_t>* starts);

}  // namespace plimsoll::nn
