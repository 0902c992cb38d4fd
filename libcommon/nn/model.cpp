#include "nn/model.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "base/error.hpp"
#include "engine/recorder.hpp"
#include "mem/tracking.hpp"
#include "nn/cpu_allocator.hpp"
#include "nn/ops/linear.hpp"

namespace plimsoll::nn
{

TokenTensors token_tensors(TokenBatch& batch)
{
    TokenTensors tokens;
    const std::int64_t num = batch.num * batch.seq_len;
    EXPECT(static_cast<std::int64_t>(batch.inputs.size()) >= num);
    tokens.ids_N = at::from_blob(batch.inputs.data(), {num}, at::TensorOptions().dtype(at::kLong));
    tokens.labels_N = at::from_blob(batch.labels.data(), {num}, at::TensorOptions().dtype(at::kLong));
    tokens.mask_N = at::from_blob(batch.mask.data(), {num}, at::TensorOptions().dtype(at::kByte));
    tokens.batch = batch.num;
    tokens.seq_len = batch.seq_len;
    return tokens;
}

namespace
{

/// This rank's real rows of a table over the vocabulary; padding is left out.
at::Tensor vocab_rows(const ShardedParams& params, FlatState state, const char* name)
{
    return params.view(state, name).narrow(0, 0, params.flat().tensor(name).box.shape[0]);
}

VocabSlice vocab_slice(const ShardedParams& params, const char* name)
{
    const FlatTensor& tensor = params.flat().tensor(name);
    VocabSlice slice;
    slice.vocab = tensor.spec.shape[0];
    slice.first = tensor.box.offset[0];
    slice.columns = tensor.local_shape[0];
    return slice;
}

}  // namespace

Model::Model(const ModelSpec& spec, ShardedParams& params, std::int64_t seq_len, std::int64_t loss_chunks)
    : spec_(spec), options_(at::TensorOptions().dtype(params.dtype()))
{
    const ParallelLayout& layout = params.layout();
    const std::int64_t stage = params.coordinate()[MeshAxis::pp];
    first_stage_ = stage == 0;
    last_stage_ = stage == layout.pp - 1;
    if (spec.position == PositionKind::rope)
    {
        const ScopedMemoryTag tag(MemoryTag::parameters);
        rope_ = std::make_unique<RopeTable>(make_rope_table(spec.rope, spec.head_dim, seq_len, params.dtype()));
    }
    if (first_stage_)
    {
        const char* tokens = "embed_tokens.weight";
        embedding_.tokens_VD = vocab_rows(params, FlatState::params, tokens);
        embedding_.slice = vocab_slice(params, tokens);
        embedding_grads_.tokens_VD = vocab_rows(params, FlatState::grads, tokens);
        if (spec.position == PositionKind::learned)
        {
            embedding_.positions_PD = params.view(FlatState::params, "embed_positions.weight");
            embedding_grads_.positions_PD = params.view(FlatState::grads, "embed_positions.weight");
        }
    }
    const StageRange range = stage_layers(spec, layout, stage);
    for (std::int64_t layer = range.first; layer < range.last; ++layer)
    {
        blocks_.push_back(block_params(spec, params, layer, rope_.get()));
        block_grads_.push_back(block_grads(spec, params, layer));
    }
    if (!last_stage_) { return; }
    final_norm_.kind = spec.norm;
    final_norm_.eps = spec.norm_eps;
    final_norm_.kept_as = MemoryUse::loss;
    final_norm_.weight_D = params.view(FlatState::params, "final_norm.weight");
    final_norm_grads_.weight_D = params.view(FlatState::grads, "final_norm.weight");
    if (spec.norm_bias)
    {
        final_norm_.bias_D = params.view(FlatState::params, "final_norm.bias");
        final_norm_grads_.bias_D = params.view(FlatState::grads, "final_norm.bias");
    }
    const char* head = spec.tied ? "embed_tokens.weight" : "head.weight";
    head_.weight_VD = vocab_rows(params, FlatState::params, head);
    head_.slice = vocab_slice(params, head);
    head_.chunks = loss_chunks;
    head_grads_.weight_VD = vocab_rows(params, FlatState::grads, head);
}

at::Tensor Model::make_activation(std::int64_t num_tokens, const char* name) const
{
    const OpScope scope(PlanOp::pipeline);
    at::Tensor received_ND = at::empty({num_tokens, spec_.hidden}, options_);
    name_tensor(received_ND, name, MemoryUse::communication);
    return received_ND;
}

TrainForward Model::forward(const OpContext& ctx, const TokenTensors& tokens, double scale, at::Tensor x_ND)
{
    const ScopedMemoryTag tag(MemoryTag::transient);
    EXPECT(x_ND.defined() != first_stage_);
    TrainForward result;
    if (first_stage_)
    {
        const OpScope scope(PlanOp::embedding);
        EmbeddingForward embedded = embedding_forward(ctx, embedding_, tokens.ids_N);
        result.state.embedding = std::move(embedded.saved);
        x_ND = std::move(embedded.y_ND);
    }
    for (const BlockParams& block : blocks_)
    {
        BlockForward done = block_forward(ctx, block, x_ND);
        result.state.blocks.push_back(std::move(done.saved));
        x_ND = std::move(done.y_ND);
    }
    if (!last_stage_)
    {
        result.y_ND = std::move(x_ND);
        return result;
    }
    result.state.dx_ND = head_step(ctx, tokens, scale, std::move(x_ND), result.sums);
    return result;
}

at::Tensor Model::head_step(const OpContext& ctx, const TokenTensors& tokens, double scale, at::Tensor x_ND, LossSums& sums)
{
    NormForward normed = last_norm(ctx, x_ND);
    x_ND = at::Tensor();
    at::Tensor dnormed_ND;
    {
        const OpScope scope(PlanOp::head_loss);
        HeadLossParams head = head_;
        head.scale = scale;
        HeadLossResult loss =
            head_loss(ctx, head, LossMode::train, normed.y_ND, tokens.labels_N, tokens.mask_N, head_grads_);
        sums.loss = loss.loss_sum;
        sums.count = loss.count;
        dnormed_ND = std::move(loss.dx_ND);
    }
    const OpScope scope(PlanOp::final_norm);
    NormBackward done = norm_backward_input(ctx, final_norm_, std::move(normed.saved), std::move(dnormed_ND));
    norm_backward_weight(ctx, std::move(done.pending), final_norm_grads_);
    return std::move(done.dx_ND);
}

NormForward Model::last_norm(const OpContext& ctx, const at::Tensor& x_ND) const
{
    const OpScope scope(PlanOp::final_norm);
    return norm_forward(ctx, final_norm_, x_ND);
}

at::Tensor Model::backward(const OpContext& ctx, ForwardState&& state, at::Tensor dy_ND)
{
    const ScopedMemoryTag tag(MemoryTag::transient);
    EXPECT(dy_ND.defined() != last_stage_);
    at::Tensor dx_ND = last_stage_ ? std::move(state.dx_ND) : std::move(dy_ND);
    for (std::size_t layer = blocks_.size(); layer-- > 0;)
    {
        dx_ND = block_backward(ctx, blocks_[layer], std::move(state.blocks[layer]), dx_ND, block_grads_[layer]);
        state.blocks.pop_back();
    }
    if (!first_stage_) { return dx_ND; }
    const OpScope scope(PlanOp::embedding);
    embedding_backward_weight(ctx, embedding_backward_input(ctx, std::move(state.embedding), dx_ND), embedding_grads_);
    return at::Tensor();
}

at::Tensor Model::blocks_forward(const OpContext& ctx, const at::Tensor& ids_N, at::Tensor x_ND) const
{
    const ScopedMemoryTag tag(MemoryTag::transient);
    EXPECT(x_ND.defined() != first_stage_);
    if (first_stage_)
    {
        const OpScope scope(PlanOp::embedding);
        x_ND = embedding_forward(ctx, embedding_, ids_N).y_ND;
    }
    for (const BlockParams& block : blocks_) { x_ND = block_forward(ctx, block, x_ND).y_ND; }
    return last_stage_ ? last_norm(ctx, x_ND).y_ND : x_ND;
}

at::Tensor Model::hidden_states(const OpContext& ctx, const at::Tensor& ids_N)
{
    EXPECT(first_stage_ && last_stage_);
    return blocks_forward(ctx, ids_N, at::Tensor());
}

at::Tensor Model::logits(const OpContext& ctx, const at::Tensor& ids_N)
{
    EXPECT(ctx.tp->size() == 1);
    return project(hidden_states(ctx, ids_N), head_.weight_VD, at::Tensor());
}

TrainForward Model::evaluate_stage(const OpContext& ctx, const TokenTensors& tokens, at::Tensor x_ND)
{
    TrainForward result;
    x_ND = blocks_forward(ctx, tokens.ids_N, std::move(x_ND));
    if (!last_stage_)
    {
        result.y_ND = std::move(x_ND);
        return result;
    }
    const ScopedMemoryTag tag(MemoryTag::transient);
    const OpScope scope(PlanOp::head_loss);
    const HeadLossResult loss =
        head_loss(ctx, head_, LossMode::evaluate, x_ND, tokens.labels_N, tokens.mask_N, head_grads_);
    result.sums.loss = loss.loss_sum;
    result.sums.count = loss.count;
    return result;
}

LossSums Model::evaluate(const OpContext& ctx, const TokenTensors& tokens)
{
    EXPECT(first_stage_ && last_stage_);
    return evaluate_stage(ctx, tokens, at::Tensor()).sums;
}

}  // namespace plimsoll::nn
