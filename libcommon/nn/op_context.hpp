#pragma once
/// What an operation knows of its surroundings. Operations are explicit functions, no autograd (decision 11):
///
///     forward(ctx, params, x) -> {y, saved}
///     backward_input(ctx, params, saved, dy) -> {dx, pending}
///     backward_weight(ctx, pending, grads)              adds into the gradients' views of the flat buffer
///
/// Shapes: B batch, S sequence, D model, H heads, K KV heads, E head dim, F ffn, V vocabulary, N = B*S tokens.
/// Activations are contiguous; tokens are flattened to [N, D] where an operation does not need S. With sequence parallel the
/// residual stream is this rank's M = N / tp tokens: [M, D]. Operations that only see the stream call what they see N.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "mem/device.hpp"

namespace plimsoll::nn
{

/// Probabilities of dropping an element. Training steps set them; evaluation leaves them zero.
struct DropoutRates
{
    double hidden = 0;    ///< of both branches of a layer
    double embedding = 0;
};

struct OpContext
{
    Stream* stream = nullptr;
    Communicator* tp = nullptr;  ///< tensor-parallel group, never null; a one-rank communicator where tp = 1
    std::int64_t batch = 0;      ///< B
    std::int64_t seq_len = 0;    ///< S
    bool cuts_tokens = false;    ///< sequence parallel: the residual stream is cut over tp, which divides N
    /// Where documents begin, TokenBatch::document_starts of the batch: a token attends within its own, and positions begin anew. Null: no masks.
    const std::vector<std::int64_t>* document_starts = nullptr;
    DropoutRates dropout;
    std::uint64_t seed = 0;      ///< of the run, keys random numbers
    std::int64_t step = 0;       ///< optimizer step, keys random numbers
    std::int64_t first_sample = 0; ///< global index of the batch's first sequence, keys random numbers

    std::int64_t tokens() const { return batch * seq_len; }                                ///< N
    std::int64_t stream_tokens() const { return cuts_tokens ? tokens() / tp->size() : tokens(); }  ///< M
    std::int64_t first_token() const { return cuts_tokens ? tp->rank() * stream_tokens() : 0; }    ///< of the M
};

/// Which rows of a table over the vocabulary this rank holds; tensors hold real rows only, padding is narrowed away.
struct VocabSlice
{
    std::int64_t vocab = 0;  ///< V of the model; 0: the table is whole
    std::int64_t first = 0;  ///< token id of this rank's first row
    std::int64_t columns = 0; ///< rows of the rank that has most: all ranks cut the work alike; 0: as many as here
    std::int64_t size(std::int64_t rows) const { return vocab > 0 ? vocab : rows; }
};

/// A tensor that an operation keeps alive, under the name that the activation table declares.
struct SavedTensor
{
    const char* name;
    at::Tensor tensor;
};

}  // namespace plimsoll::nn
