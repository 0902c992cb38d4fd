#pragma once
/// Sizes that kernels choose for themselves: what they work on at once, and what they allocate meanwhile. The operations ask
/// the same functions, so that the plan and the run cannot drift apart.
///
/// N tokens, S sequence, E head dim, V vocabulary columns of this rank.

#include <algorithm>
#include <cstdint>

namespace plimsoll
{

/// Rows that one block of a sum over rows takes: at least 64, at most 64 blocks. Depends on `rows` only, so that a
/// sum by blocks has the same bits for every number of threads.
inline std::int64_t sum_block_rows(std::int64_t rows)
{
    constexpr std::int64_t most_blocks = 64;
    return std::max<std::int64_t>(64, (rows + most_blocks - 1) / most_blocks);
}

/// Blocks of such a sum: rows of its table of partial sums.
inline std::int64_t num_sum_blocks(std::int64_t rows)
{
    const std::int64_t block = sum_block_rows(rows);
    return (rows + block - 1) / block;
}

/// Rows of one block of a product of bf16 operands, which are converted to fp32 block by block (nn/ops/product.hpp): tokens, and
/// rows of the weight. Large enough that conversion takes little beside the product, small enough to stay in a cache.
inline std::int64_t product_token_rows(std::int64_t tokens) { return std::min<std::int64_t>(tokens, 512); }
inline std::int64_t product_weight_rows(std::int64_t inputs, std::int64_t outputs)
{
    constexpr std::int64_t block_elements = std::int64_t{1} << 18;
    return std::min(outputs, std::max<std::int64_t>(64, block_elements / std::max<std::int64_t>(1, inputs)));
}

/// fp32 elements of its scratch: a block of inputs, of outputs and of the weight.
inline std::int64_t product_scratch_elements(std::int64_t tokens, std::int64_t inputs, std::int64_t outputs)
{
    const std::int64_t token_rows = product_token_rows(tokens), weight_rows = product_weight_rows(inputs, outputs);
    return token_rows * (inputs + weight_rows) + weight_rows * inputs;
}

/// Most bytes of one chunk's logits where the run file does not say how many chunks.
constexpr std::int64_t loss_chunk_bytes = std::int64_t{64} << 20;

/// Rows of one chunk of the loss. `chunks` 0: as many chunks as `chunk_bytes` asks for.
inline std::int64_t loss_chunk_rows(std::int64_t num_rows, std::int64_t columns, std::int64_t element_bytes,
                                    std::int64_t chunks, std::int64_t chunk_bytes = loss_chunk_bytes)
{
    const std::int64_t row_bytes = std::max<std::int64_t>(1, columns * element_bytes);
    const std::int64_t rows_in_budget = std::max<std::int64_t>(1, chunk_bytes / row_bytes);
    const std::int64_t parts = chunks > 0 ? chunks : (num_rows + rows_in_budget - 1) / rows_in_budget;
    return std::max<std::int64_t>(1, (num_rows + parts - 1) / std::max<std::int64_t>(1, parts));
}

/// Columns of the logits buffer: rows start on cache lines.
inline std::int64_t logits_row_elements(std::int64_t columns, std::int64_t element_bytes)
{
    const std::int64_t per_line = 64 / element_bytes;
    return (columns + per_line - 1) / per_line * per_line;
}

/// Most bytes that ATen's flash attention for CPUs allocates for itself (aten/src/ATen/native/cpu/FlashAttentionKernel.cpp,
/// fp32 and fp64 without packing): per thread a block of scores, its row maxima and sums, and a block of the output.
inline std::int64_t flash_forward_workspace(std::int64_t seq_len, std::int64_t head_dim, std::int64_t element_bytes,
                                            std::int64_t threads)
{
    const std::int64_t queries = std::min<std::int64_t>(seq_len, seq_len >= 768 ? 256 : seq_len >= 192 ? 64 : 32);
    const std::int64_t keys = std::min<std::int64_t>(seq_len, 512);
    return threads * element_bytes * (queries * keys + 2 * queries + queries * head_dim);
}

/// The same of its backward: per thread the scores, their gradient and the row sums of dout * out.
inline std::int64_t flash_backward_workspace(std::int64_t seq_len, std::int64_t element_bytes, std::int64_t threads)
{
    const std::int64_t queries = std::min<std::int64_t>(seq_len, seq_len >= 768 ? 256 : seq_len >= 192 ? 64 : 32);
    const std::int64_t keys = std::min<std::int64_t>(seq_len, 512);
    return threads * element_bytes * (2 * queries * keys + queries);
}

}  // namespace plimsoll
