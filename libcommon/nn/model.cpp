#include "nn/model.hpp"

#include <ATen/ops/from_blob.h>

#include "base/error.hpp"
#include "mem/tracking.hpp"
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

Model::Model(const ModelSpec& spec, ShardedParams& params, std::int64_t seq_len, std::int64_t loss_chunks) : spec_(spec)
{
    if (spec.position == PositionKind::rope)
    {
        rope_ = std::make_unique<RopeTable>(make_rope_table(spec.rope, spec.head_dim, seq_len, params.dtype()));
    }
    embedding_.tokens_VD = params.view(FlatState::params, "embed_tokens.weight");
    embedding_grads_.tokens_VD = params.view(FlatState::grads, "embed_tokens.weight");
    if (spec.position == PositionKind::learned)
    {
        embedding_.positions_PD = params.view(FlatState::params, "embed_positions.weight");
        embedding_grads_.positions_PD = params.view(FlatState::grads, "embed_positions.weight");
    }
    for (std::int64_t layer = 0; layer < spec.layers; ++layer)
    {
        blocks_.push_back(block_params(spec, params, layer, rope_.get()));
        block_grads_.push_back(block_grads(spec, params, layer));
    }
    final_norm_.kind = spec.norm;
    final_norm_.eps = spec.norm_eps;
    final_norm_.weight_D = params.view(FlatState::params, "final_norm.weight");
    final_norm_grads_.weight_D = params.view(FlatState::grads, "final_norm.weight");
    if (spec.norm_bias)
    {
        final_norm_.bias_D = params.view(FlatState::params, "final_norm.bias");
        final_norm_grads_.bias_D = params.view(FlatState::grads, "final_norm.bias");
    }
    const char* head = spec.tied ? "embed_tokens.weight" : "head.weight";
    head_.weight_VD = params.view(FlatState::params, head);
    head_.chunks = loss_chunks;
    head_grads_.weight_VD = params.view(FlatState::grads, head);
}

TrainForward Model::forward(const OpContext& ctx, const TokenTensors& tokens, double scale)
{
    const ScopedMemoryTag tag(MemoryTag::activations);
    TrainForward result;
    EmbeddingForward embedded = embedding_forward(ctx, embedding_, tokens.ids_N);
    result.state.embedding = std::move(embedded.saved);
    at::Tensor x_ND = std::move(embedded.y_ND);
    for (const BlockParams& block : blocks_)
    {
        BlockForward done = block_forward(ctx, block, x_ND);
        result.state.blocks.push_back(std::move(done.saved));
        x_ND = std::move(done.y_ND);
    }
    NormForward normed = norm_forward(ctx, final_norm_, x_ND);
    result.state.final_norm = std::move(normed.saved);

    const ScopedMemoryTag loss_tag(MemoryTag::loss);
    HeadLossParams head = head_;
    head.scale = scale;
    HeadLossResult loss =
        head_loss(ctx, head, LossMode::train, normed.y_ND, tokens.labels_N, tokens.mask_N, head_grads_);
    result.sums.loss = loss.loss_sum;
    result.sums.count = loss.count;
    result.state.dnormed_ND = std::move(loss.dx_ND);
    return result;
}

void Model::backward(const OpContext& ctx, ForwardState&& state)
{
    const ScopedMemoryTag tag(MemoryTag::activations);
    NormBackward normed =
        norm_backward_input(ctx, final_norm_, std::move(state.final_norm), std::move(state.dnormed_ND));
    norm_backward_weight(ctx, std::move(normed.pending), final_norm_grads_);
    at::Tensor dx_ND = std::move(normed.dx_ND);
    for (std::size_t layer = blocks_.size(); layer-- > 0;)
    {
        dx_ND = block_backward(ctx, blocks_[layer], std::move(state.blocks[layer]), dx_ND, block_grads_[layer]);
        state.blocks.pop_back();
    }
    embedding_backward_weight(ctx, embedding_backward_input(ctx, std::move(state.embedding), dx_ND), embedding_grads_);
}

at::Tensor Model::hidden_states(const OpContext& ctx, const at::Tensor& ids_N)
{
    const ScopedMemoryTag tag(MemoryTag::activations);
    at::Tensor x_ND = embedding_forward(ctx, embedding_, ids_N).y_ND;
    for (const BlockParams& block : blocks_) { x_ND = block_forward(ctx, block, x_ND).y_ND; }
    return norm_forward(ctx, final_norm_, x_ND).y_ND;
}

at::Tensor Model::logits(const OpContext& ctx, const at::Tensor& ids_N)
{
    return project(hidden_states(ctx, ids_N), head_.weight_VD, at::Tensor());
}

LossSums Model::evaluate(const OpContext& ctx, const TokenTensors& tokens)
{
    const at::Tensor x_ND = hidden_states(ctx, tokens.ids_N);
    const ScopedMemoryTag tag(MemoryTag::loss);
    const HeadLossResult loss =
        head_loss(ctx, head_, LossMode::evaluate, x_ND, tokens.labels_N, tokens.mask_N, head_grads_);
    LossSums sums;
    sums.loss = loss.loss_sum;
    sums.count = loss.count;
    return sums;
}

}  // namespace plimsoll::nn
