#include "nn/evaluator.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.hpp"

namespace plimsoll::nn
{

EvaluationResult evaluate(Model& model, RankGroups& groups, const EvaluationSet& set, std::int64_t seq_len,
                          std::int64_t micro_batch)
{
    const auto start = std::chrono::steady_clock::now();
    Stream stream;
    OpContext ctx;
    ctx.stream = &stream;
    ctx.tp = groups.tp.get();
    ctx.seq_len = seq_len;

    LossSums sums;
    TokenBatch batch;
    const std::int64_t stride = micro_batch * groups.dp->size();
    for (std::int64_t base = groups.dp->rank() * micro_batch; base < set.num_sequences(); base += stride)
    {
        const std::int64_t num = std::min(micro_batch, set.num_sequences() - base);
        set.read(base, num, batch);
        ctx.batch = num;
        sums += model.evaluate(ctx, token_tensors(batch));
    }
    double values[2] = {sums.loss, static_cast<double>(sums.count)};
    BufferView view;
    view.data = values;
    view.dtype = Dtype::f64;
    view.count = 2;
    groups.dp->all_reduce(view, ReduceOp::sum, stream).synchronize();

    EvaluationResult result;
    result.tokens = static_cast<std::int64_t>(values[1]);
    VALIDATE(result.tokens > 0, ConfigError, "the evaluation set has no token that counts");
    result.loss = values[0] / values[1];
    VALIDATE(std::isfinite(result.loss), NumericError, "validation loss is {}", result.loss);
    result.perplexity = std::exp(result.loss);
    if (set.bytes_per_token() > 0) { result.bits_per_byte = result.loss / std::log(2.0) / set.bytes_per_token(); }
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return result;
}

}  // namespace plimsoll::nn
