#include "nn/model.hpp"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>

#include "base/error.hpp"
#include "engine/recorder.hpp"
#include "mem/tracking.hpp"
#include "nn/cpu_allocator.hpp"
#include "nn/ops/dropout.hpp"
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

/// Forward on the embedding's output, backward on its gradient.
void drop_embedding(const OpContext& ctx, const at::Tensor& x_ND)
{
    if (ctx.dropout.embedding > 0) { dropout_in_place(ctx, {ctx.dropout.embedding, DropoutSite::embedding, 0}, x_ND); }
}

}  // namespace

Model::Model(const ModelSpec& spec, ShardedParams& params, std::int64_t seq_len, std::int64_t loss_chunks,
             double label_smoothing, double z_loss)
    : spec_(spec), params_(params), chunks_(stage_chunks(spec, params.layout(), params.coordinate()[MeshAxis::pp])),
      options_(at::TensorOptions().dtype(params.dtype()))
{
    if (spec.position == PositionKind::rope)
    {
        const ScopedMemoryTag tag(MemoryTag::parameters);
        rope_ = std::make_unique<RopeTable>(make_rope_table(spec.rope, spec.head_dim, seq_len, params.sum_dtype()));
    }
    for (std::int64_t u = 0; u < params.num_units(); ++u)
    {
        const UnitKind kind = params.flat().units[static_cast<std::size_t>(u)].kind;
        if (kind == UnitKind::block) { block_units_.push_back(u); }
        if (kind == UnitKind::tied_embedding || kind == UnitKind::embedding) { embedding_units_.push_back(u); }
        if (kind == UnitKind::tied_embedding || kind == UnitKind::head) { head_units_.push_back(u); }
    }
    blocks_.resize(block_units_.size());
    block_grads_.resize(block_units_.size());
    final_norm_.kind = spec.norm;
    final_norm_.eps = spec.norm_eps;
    final_norm_.kept_as = MemoryUse::loss;
    head_.chunks = loss_chunks;
    head_.label_smoothing = label_smoothing;
    head_.z_loss = z_loss;
    const auto take_fixed = [&](Piece piece, std::size_t block)
    {
        if (!comes_and_goes(FlatState::params, piece, block)) { take_views(piece, block, Needs::parameters); }
        if (!comes_and_goes(FlatState::grads, piece, block)) { take_views(piece, block, Needs::gradients); }
    };
    for (const StageChunk& chunk : chunks_)
    {
        if (chunk.is_first()) { take_fixed(Piece::embedding, 0); }
        if (chunk.is_last()) { take_fixed(Piece::head, 0); }
    }
    for (std::size_t block = 0; block < blocks_.size(); ++block) { take_fixed(Piece::block, block); }
}

std::int64_t Model::layer_of(std::size_t block) const
{
    return params_.flat().units[static_cast<std::size_t>(block_units_[block])].layer;
}

Model::Blocks Model::blocks_of(std::int64_t chunk) const
{
    Blocks blocks;
    for (std::int64_t before = 0; before < chunk; ++before) { blocks.begin += static_cast<std::size_t>(at(before).layers.size()); }
    blocks.end = blocks.begin + static_cast<std::size_t>(at(chunk).layers.size());
    return blocks;
}

bool Model::comes_and_goes(FlatState state, Piece piece, std::size_t block) const
{
    if (piece == Piece::block) { return params_.comes_and_goes(state, block_units_[block]); }
    const std::vector<std::int64_t>& units = piece == Piece::embedding ? embedding_units_ : head_units_;
    return std::any_of(units.begin(), units.end(), [&](std::int64_t unit) { return params_.comes_and_goes(state, unit); });
}

void Model::take_views(Piece piece, std::size_t block, Needs needs)
{
    const bool parameters = needs != Needs::gradients, gradients = needs != Needs::parameters;
    const std::int64_t layer = piece == Piece::block ? layer_of(block) : -1;
    const char* tokens = "embed_tokens.weight";
    const char* positions = "embed_positions.weight";
    const char* head = spec_.tied ? tokens : "head.weight";
    const bool learned = spec_.position == PositionKind::learned;
    switch (piece)
    {
        case Piece::embedding:
            if (parameters)
            {
                embedding_.tokens_VD = vocab_rows(params_, FlatState::params, tokens);
                embedding_.slice = vocab_slice(params_, tokens);
                if (learned) { embedding_.positions_PD = params_.view(FlatState::params, positions); }
            }
            if (gradients)
            {
                embedding_grads_.tokens_VD = vocab_rows(params_, FlatState::grads, tokens);
                if (learned) { embedding_grads_.positions_PD = params_.view(FlatState::grads, positions); }
            }
            break;
        case Piece::block:
            if (parameters) { blocks_[block] = block_params(spec_, params_, layer, rope_.get()); }
            if (gradients) { block_grads_[block] = block_grads(spec_, params_, layer); }
            break;
        case Piece::head:
            if (parameters)
            {
                final_norm_.weight_D = params_.view(FlatState::params, "final_norm.weight");
                if (spec_.norm_bias) { final_norm_.bias_D = params_.view(FlatState::params, "final_norm.bias"); }
                head_.weight_VD = vocab_rows(params_, FlatState::params, head);
                head_.slice = vocab_slice(params_, head);
            }
            if (gradients)
            {
                final_norm_grads_.weight_D = params_.view(FlatState::grads, "final_norm.weight");
                if (spec_.norm_bias) { final_norm_grads_.bias_D = params_.view(FlatState::grads, "final_norm.bias"); }
                head_grads_.weight_VD = vocab_rows(params_, FlatState::grads, head);
            }
            break;
    }
}

void Model::drop_views(Piece piece, std::size_t block)
{
    const bool parameters = comes_and_goes(FlatState::params, piece, block);
    const bool gradients = comes_and_goes(FlatState::grads, piece, block);
    switch (piece)
    {
        case Piece::embedding:
            if (parameters) { embedding_ = EmbeddingParams(); }
            if (gradients) { embedding_grads_ = EmbeddingGrads(); }
            break;
        case Piece::block:
            if (parameters) { blocks_[block] = BlockParams(); }
            if (gradients) { block_grads_[block] = BlockGrads(); }
            break;
        case Piece::head:
            if (parameters)
            {
                final_norm_.weight_D = final_norm_.bias_D = at::Tensor();
                head_.weight_VD = at::Tensor();
            }
            if (gradients)
            {
                final_norm_grads_ = NormGrads();
                head_grads_ = HeadLossGrads();
            }
            break;
    }
}

template<class Compute>
void Model::use(UnitUses* uses, Piece piece, std::size_t block, Needs needs, const Compute& compute)
{
    const bool new_parameters = needs != Needs::gradients && comes_and_goes(FlatState::params, piece, block);
    const bool new_gradients = needs != Needs::parameters && comes_and_goes(FlatState::grads, piece, block);
    EXPECT(uses != nullptr || (!new_parameters && !new_gradients));
    if (uses != nullptr) { uses->before(); }
    if (new_parameters) { take_views(piece, block, Needs::parameters); }
    if (new_gradients) { take_views(piece, block, Needs::gradients); }
    compute();
    if (new_parameters || new_gradients) { drop_views(piece, block); }
    if (uses != nullptr) { uses->after(); }
}

at::Tensor Model::make_received(Received what, std::int64_t num_tokens, std::int64_t chunk) const
{
    // Named after the layer that takes it.
    const StageRange& layers = at(chunk).layers;
    const OpScope scope(PlanOp::pipeline, what == Received::activation ? layers.first : layers.last - 1);
    at::Tensor received_ND = at::empty({num_tokens, spec_.hidden}, options_);
    name_tensor(received_ND, what == Received::activation ? "x" : "dy", MemoryUse::communication);
    return received_ND;
}

TrainForward Model::forward(const OpContext& ctx, const TokenTensors& tokens, double scale, at::Tensor x_ND, UnitUses* uses,
                            std::int64_t chunk)
{
    const ScopedMemoryTag tag(MemoryTag::transient);
    EXPECT(x_ND.defined() != at(chunk).is_first());
    TrainForward result;
    if (at(chunk).is_first())
    {
        use(uses, Piece::embedding, 0, Needs::parameters,
            [&]
            {
                const OpScope scope(PlanOp::embedding);
                EmbeddingForward embedded = embedding_forward(ctx, embedding_, tokens.ids_N);
                result.state.embedding = std::move(embedded.saved);
                x_ND = std::move(embedded.y_MD);
                drop_embedding(ctx, x_ND);
            });
    }
    const Blocks blocks = blocks_of(chunk);
    for (std::size_t block = blocks.begin; block < blocks.end; ++block)
    {
        use(uses, Piece::block, block, Needs::parameters,
            [&]
            {
                BlockForward done = block_forward(ctx, blocks_[block], x_ND);
                result.state.blocks.push_back(std::move(done.saved));
                x_ND = std::move(done.y_ND);
            });
    }
    if (!at(chunk).is_last())
    {
        result.y_ND = std::move(x_ND);
        return result;
    }
    use(uses, Piece::head, 0, Needs::both,
        [&] { result.state.dx_ND = head_step(ctx, tokens, scale, std::move(x_ND), result.sums); });
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
        sums.cross_entropy = loss.cross_entropy_sum;
        sums.count = loss.count;
        dnormed_ND = std::move(loss.dx_MD);
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

at::Tensor Model::backward(const OpContext& ctx, ForwardState&& state, at::Tensor dy_ND, UnitUses* uses, std::int64_t chunk)
{
    const ScopedMemoryTag tag(MemoryTag::transient);
    EXPECT(dy_ND.defined() != at(chunk).is_last());
    at::Tensor dx_ND = at(chunk).is_last() ? std::move(state.dx_ND) : std::move(dy_ND);
    const Blocks blocks = blocks_of(chunk);
    for (std::size_t block = blocks.end; block-- > blocks.begin;)
    {
        use(uses, Piece::block, block, Needs::both,
            [&]
            {
                dx_ND = block_backward(ctx, blocks_[block], std::move(state.blocks.back()), dx_ND, block_grads_[block]);
                state.blocks.pop_back();
            });
    }
    if (!at(chunk).is_first()) { return dx_ND; }
    use(uses, Piece::embedding, 0, Needs::gradients,
        [&]
        {
            const OpScope scope(PlanOp::embedding);
            drop_embedding(ctx, dx_ND);
            EmbeddingPending pending = embedding_backward_input(ctx, std::move(state.embedding), dx_ND);
            dx_ND = at::Tensor();
            embedding_backward_weight(ctx, std::move(pending), embedding_grads_);
        });
    return at::Tensor();
}

InputBackward Model::backward_input(const OpContext& ctx, ForwardState&& state, at::Tensor dy_ND, UnitUses* uses,
                                    std::int64_t chunk)
{
    const ScopedMemoryTag tag(MemoryTag::transient);
    EXPECT(dy_ND.defined() != at(chunk).is_last());
    InputBackward result;
    at::Tensor dx_ND = at(chunk).is_last() ? std::move(state.dx_ND) : std::move(dy_ND);
    const Blocks blocks = blocks_of(chunk);
    for (std::size_t block = blocks.end; block-- > blocks.begin;)
    {
        use(uses, Piece::block, block, Needs::parameters,
            [&]
            {
                BlockBackward done =
                    block_backward_input(ctx, blocks_[block], std::move(state.blocks.back()), std::move(dx_ND));
                state.blocks.pop_back();
                result.pending.blocks.push_back(std::move(done.pending));
                dx_ND = std::move(done.dx_ND);
            });
    }
    if (!at(chunk).is_first())
    {
        result.dx_ND = std::move(dx_ND);
        return result;
    }
    const OpScope scope(PlanOp::embedding);
    drop_embedding(ctx, dx_ND);
    result.pending.embedding = embedding_backward_input(ctx, std::move(state.embedding), dx_ND);
    return result;
}

void Model::backward_weight(const OpContext& ctx, BackwardPending&& pending, UnitUses* uses, std::int64_t chunk)
{
    const ScopedMemoryTag tag(MemoryTag::transient);
    const Blocks blocks = blocks_of(chunk);
    EXPECT(pending.blocks.size() == blocks.end - blocks.begin);
    for (std::size_t i = 0; i < pending.blocks.size(); ++i)
    {
        const std::size_t block = blocks.end - 1 - i;
        use(uses, Piece::block, block, Needs::gradients,
            [&]
            {
                block_backward_weight(ctx, layer_of(block), std::move(pending.blocks[i]), block_grads_[block]);
            });
    }
    if (!at(chunk).is_first()) { return; }
    use(uses, Piece::embedding, 0, Needs::gradients,
        [&]
        {
            const OpScope scope(PlanOp::embedding);
            embedding_backward_weight(ctx, std::move(pending.embedding), embedding_grads_);
        });
}

at::Tensor Model::blocks_forward(const OpContext& ctx, const at::Tensor& ids_N, at::Tensor x_ND, UnitUses* uses,
                                 std::int64_t chunk)
{
    const ScopedMemoryTag tag(MemoryTag::transient);
    EXPECT(x_ND.defined() != at(chunk).is_first());
    if (at(chunk).is_first())
    {
        use(uses, Piece::embedding, 0, Needs::parameters,
            [&]
            {
                const OpScope scope(PlanOp::embedding);
                x_ND = embedding_forward(ctx, embedding_, ids_N).y_MD;
            });
    }
    const Blocks blocks = blocks_of(chunk);
    for (std::size_t block = blocks.begin; block < blocks.end; ++block)
    {
        use(uses, Piece::block, block, Needs::parameters, [&] { x_ND = block_forward(ctx, blocks_[block], x_ND).y_ND; });
    }
    return x_ND;
}

at::Tensor Model::hidden_states(const OpContext& ctx, const at::Tensor& ids_N)
{
    EXPECT(is_whole());
    return last_norm(ctx, blocks_forward(ctx, ids_N, at::Tensor(), nullptr, 0)).y_ND;
}

at::Tensor Model::logits(const OpContext& ctx, const at::Tensor& ids_N)
{
    EXPECT(ctx.tp->size() == 1);
    const at::Tensor hidden_ND = hidden_states(ctx, ids_N);
    const at::Tensor logits_NV = at::empty({hidden_ND.size(0), head_.weight_VD.size(0)}, options_.dtype(params_.sum_dtype()));
    project_into(hidden_ND, head_.weight_VD, at::Tensor(), logits_NV, "product");
    return logits_NV;
}

TrainForward Model::evaluate_chunk(const OpContext& ctx, const TokenTensors& tokens, at::Tensor x_ND, UnitUses* uses,
                                   std::int64_t chunk)
{
    TrainForward result;
    x_ND = blocks_forward(ctx, tokens.ids_N, std::move(x_ND), uses, chunk);
    if (!at(chunk).is_last())
    {
        result.y_ND = std::move(x_ND);
        return result;
    }
    const ScopedMemoryTag tag(MemoryTag::transient);
    use(uses, Piece::head, 0, Needs::parameters,
        [&]
        {
            x_ND = last_norm(ctx, x_ND).y_ND;
            const OpScope scope(PlanOp::head_loss);
            const HeadLossResult loss =
                head_loss(ctx, head_, LossMode::evaluate, x_ND, tokens.labels_N, tokens.mask_N, head_grads_);
            result.sums.loss = loss.loss_sum;
            result.sums.cross_entropy = loss.cross_entropy_sum;
            result.sums.count = loss.count;
            x_ND = at::Tensor();
        });
    return result;
}

LossSums Model::evaluate(const OpContext& ctx, const TokenTensors& tokens)
{
    EXPECT(is_whole());
    return evaluate_chunk(ctx, tokens, at::Tensor()).sums;
}

}  // namespace plimsoll::nn
