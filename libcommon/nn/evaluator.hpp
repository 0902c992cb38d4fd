#pragma once
/// Validation: forward only over a fixed token set, each token counted once.

#include "io/token_order.hpp"
#include "nn/model.hpp"
#include "nn/train_step.hpp"

namespace plimsoll::nn
{

struct EvaluationResult
{
    double loss = 0;          ///< nats per token
    double perplexity = 0;
    double bits_per_byte = 0; ///< 0 when the shards do not know their text bytes
    std::int64_t tokens = 0;
    double seconds = 0;
};

/// Every rank calls it with the same arguments and gets the same result; dp ranks share the batches, stages pass activations on.
/// Runs the model over the whole set in batches of at most `micro_batch` sequences; touches neither parameters nor
/// gradients. @throws NumericError when the loss is not finite.
EvaluationResult evaluate(Model& model, ShardedParams& params, RankGroups& groups, const EvaluationSet& set,
                          std::int64_t seq_len, std::int64_t micro_batch);

}  // namespace plimsoll::nn
