#include "nn/evaluator.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/error.hpp"
#include "engine/recorder.hpp"
#include "nn/ops/tensor_view.hpp"
#include "nn/unit_runner.hpp"

namespace plimsoll::nn
{

EvaluationResult evaluate(Model& model, ShardedParams& params, RankGroups& groups, const EvaluationSet& set,
                          std::int64_t seq_len, std::int64_t micro_batch)
{
    const auto start = std::chrono::steady_clock::now();
    Stream stream;
    OpContext ctx;
    ctx.stream = &stream;
    ctx.tp = groups.tp.get();
    ctx.seq_len = seq_len;

    LossSums sums;
    TokenBatch batch;
    set_recorded_phase(StepPhase::validation, 0);
    at::Tensor sent_ND;  // belongs to `sent`
    Work sent;
    const std::int64_t stage = groups.pp->rank();
    const ParallelLayout& layout = params.layout();
    const ChunkPlacement placement = placement_of(layout.schedule);
    GradientReducer gatherer(params.flat(), params.layout(), groups);
    UnitRunner units(params, gatherer,
                     UnitOrder(params.flat(), params.layout(), uses_of_validation(params.flat(), params.layout(), stage)),
                     stream);
    const std::int64_t stride = micro_batch * groups.dp_size();
    for (std::int64_t round = 0; round < set.num_sequences(); round += stride)
    {
        const std::int64_t base = round + groups.dp_rank() * micro_batch;
        if (base >= set.num_sequences())
        {
            units.skip();  // others gather parameters
            continue;
        }
        const std::int64_t num = std::min(micro_batch, set.num_sequences() - base);
        set.read(base, num, batch);
        ctx.document_starts = batch.document_starts.empty() ? nullptr : &batch.document_starts;
        ctx.batch = num;
        ctx.cuts_tokens = layout.cuts_tokens(ctx.tokens());
        at::Tensor x_ND;  // between chunks
        for (std::int64_t c = 0; c < layout.virtual_stages; ++c)
        {
            const StageChunk& chunk = model.chunks()[static_cast<std::size_t>(c)];
            const std::int64_t here = virtual_stage(placement, layout.pp, stage, c);
            if (chunk.before == Neighbour::elsewhere)
            {
                x_ND = model.make_received(Received::activation, ctx.stream_tokens(), c);
                groups.pp->recv(buffer_view(x_ND), chunk_place(placement, layout.pp, here - 1).stage, stream).wait(stream);
            }
            TrainForward done = model.evaluate_chunk(ctx, token_tensors(batch), std::move(x_ND), &units, c);
            sums += done.sums;
            x_ND = std::move(done.y_ND);
            if (chunk.behind != Neighbour::elsewhere) { continue; }
            // Before a stage's next chunk or batch comes, what it sent was received, or is next on the other's list.
            sent.wait(stream);
            sent_ND = std::move(x_ND);
            sent = groups.pp->send(buffer_view(sent_ND), chunk_place(placement, layout.pp, here + 1).stage, stream);
        }
        units.finish();
    }
    sent.wait(stream);
    // All ranks of a tp group have the same sums, only last stages have any: one rank speaks for each batch.
    const bool speaks = groups.tp->rank() == 0;
    double values[2] = {speaks ? sums.loss : 0.0, speaks ? static_cast<double>(sums.count) : 0.0};
    BufferView view;
    view.data = values;
    view.dtype = Dtype::f64;
    view.count = 2;
    groups.world->all_reduce(view, ReduceOp::sum, stream).wait(stream);

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
