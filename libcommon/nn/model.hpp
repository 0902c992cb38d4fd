#pragma once
/// The whole model of one pipeline stage: embedding, blocks, final norm, fused head and loss.
///
/// Explicit forward and backward; what a micro-batch keeps alive between them is one ForwardState per chunk of the stage. A stage
/// without virtual stages is one chunk, and one rank's model has both ends. One control thread.
/// B batch, S sequence, N = B*S tokens, D model. Of activations [N, D] a rank holds its share of the tokens with sequence parallel.

#include <memory>
#include <vector>

#include "io/token_batch.hpp"
#include "nn/block.hpp"
#include "nn/ops/embedding.hpp"
#include "nn/ops/head_loss.hpp"
#include "nn/sharded_params.hpp"
#include "nn/unit_uses.hpp"

namespace plimsoll::nn
{

/// Tokens of a micro-batch as tensors over the TokenBatch's own memory: valid while the batch lives and is not refilled.
struct TokenTensors
{
    at::Tensor ids_N;
    at::Tensor labels_N;
    at::Tensor mask_N;
    std::int64_t batch = 0;
    std::int64_t seq_len = 0;
};
TokenTensors token_tensors(TokenBatch& batch);

/// Sums over a micro-batch; averages are taken once, after all sums were added.
struct LossSums
{
    double loss = 0;          ///< nats, over the tokens whose mask is 1; in training with label smoothing and z-loss
    double cross_entropy = 0; ///< the same without them
    std::int64_t count = 0;   ///< of these tokens
    LossSums& operator+=(const LossSums& other)
    {
        loss += other.loss;
        cross_entropy += other.cross_entropy;
        count += other.count;
        return *this;
    }
};

/// Everything that a forward keeps alive for its backward. Embedding on the first chunk, gradient on the last.
struct ForwardState
{
    EmbeddingSaved embedding;
    std::vector<BlockSaved> blocks;
    at::Tensor dx_ND; ///< gradient of the last block's output: the fused loss makes it in forward, through the final norm
};

/// What backward_input leaves for backward_weight.
struct BackwardPending
{
    std::vector<BlockPending> blocks; ///< from the last layer down
    EmbeddingPending embedding;       ///< first chunk only
};

struct InputBackward
{
    at::Tensor dx_ND; ///< what the chunk before takes, undefined on the first
    BackwardPending pending;
};

struct TrainForward
{
    LossSums sums;     ///< last chunk only, elsewhere zero
    at::Tensor y_ND;   ///< what the chunk behind takes; undefined on the last
    ForwardState state;
};

/// What a chunk receives from another stage.
enum class Received
{
    activation,
    gradient,
};

class Model
{
  public:
    /// Views into `params`, which must outlive the model and say which stage this is. `loss_chunks` as HeadLossParams::chunks;
    /// the terms hold for forward(), not for evaluation.
    /// Where parts of `params` come and go, each call below is given `uses` that make them be there in time; else it may be null.
    Model(const ModelSpec& spec, ShardedParams& params, std::int64_t seq_len, std::int64_t loss_chunks,
          double label_smoothing = 0, double z_loss = 0);

    /// In the order in which a micro-batch passes them; each call below is of one chunk.
    const std::vector<StageChunk>& chunks() const { return chunks_; }
    /// Room for what another stage sends.
    at::Tensor make_received(Received what, std::int64_t num_tokens, std::int64_t chunk = 0) const;

    /// Forward, on the last chunk with the loss and the whole backward of head and final norm; `scale` multiplies the loss's gradient at its source.
    /// `x_ND`: what the chunk before made, undefined on the first. Ids are read on the first chunk, labels and mask on
    /// the last.
    TrainForward forward(const OpContext& ctx, const TokenTensors& tokens, double scale, at::Tensor x_ND = at::Tensor(),
                         UnitUses* uses = nullptr, std::int64_t chunk = 0);
    /// Adds all other gradients; consumes the state block by block. `dy_ND`: what the chunk behind made, undefined on the last.
    /// Returns what the chunk before takes, undefined on the first.
    at::Tensor backward(const OpContext& ctx, ForwardState&& state, at::Tensor dy_ND = at::Tensor(), UnitUses* uses = nullptr,
                        std::int64_t chunk = 0);
    /// backward() in two halves, which a schedule may run apart; gradients are the same to the bit. The first needs the parameters,
    /// the second adds to the gradients.
    InputBackward backward_input(const OpContext& ctx, ForwardState&& state, at::Tensor dy_ND = at::Tensor(),
                                 UnitUses* uses = nullptr, std::int64_t chunk = 0);
    void backward_weight(const OpContext& ctx, BackwardPending&& pending, UnitUses* uses = nullptr, std::int64_t chunk = 0);
    /// Loss only; keeps nothing alive. @pre one stage
    LossSums evaluate(const OpContext& ctx, const TokenTensors& tokens);
    /// One chunk of evaluate().
    TrainForward evaluate_chunk(const OpContext& ctx, const TokenTensors& tokens, at::Tensor x_ND, UnitUses* uses = nullptr,
                                std::int64_t chunk = 0);
    /// Final hidden states [N, D] after the last norm, for tests and generation. @pre one stage
    at::Tensor hidden_states(const OpContext& ctx, const at::Tensor& ids_N);
    /// Logits [N, V], fp32 in a bf16 run. @pre one stage, tp 1
    at::Tensor logits(const OpContext& ctx, const at::Tensor& ids_N);

  private:
    /// Final norm, loss and the backward of both; returns the gradient of `x_ND`.
    at::Tensor head_step(const OpContext& ctx, const TokenTensors& tokens, double scale, at::Tensor x_ND, LossSums& sums);
    NormForward last_norm(const OpContext& ctx, const at::Tensor& x_ND) const;
    /// Embedding and blocks, keeping nothing.
    at::Tensor blocks_forward(const OpContext& ctx, const at::Tensor& ids_N, at::Tensor x_ND, UnitUses* uses, std::int64_t chunk);

    /// Views that the model computes with, taken anew where their unit was.
    enum class Piece { embedding, block, head };
    enum class Needs { parameters, gradients, both };
    void take_views(Piece piece, std::size_t block, Needs needs);
    void drop_views(Piece piece, std::size_t block);
    /// One use: `compute` runs while the units of the piece are there.
    template<class Compute>
    void use(UnitUses* uses, Piece piece, std::size_t block, Needs needs, const Compute& compute);
    /// Any of the piece's units.
    bool comes_and_goes(FlatState state, Piece piece, std::size_t block) const;

    const StageChunk& at(std::int64_t chunk) const { return chunks_[static_cast<std::size_t>(chunk)]; }
    /// Numbers of its blocks among those of the stage.
    struct Blocks
    {
        std::size_t begin = 0, end = 0;
    };
    Blocks blocks_of(std::int64_t chunk) const;
    std::int64_t layer_of(std::size_t block) const;
    bool is_whole() const { return chunks_.front().is_first() && chunks_.front().is_last(); }

    ModelSpec spec_;
    ShardedParams& params_;
    std::vector<StageChunk> chunks_;
    std::vector<std::int64_t> embedding_units_, block_units_, head_units_;
    at::TensorOptions options_;
    std::unique_ptr<RopeTable> rope_;
    EmbeddingParams embedding_;
    EmbeddingGrads embedding_grads_;
    std::vector<BlockParams> blocks_;
    std::vector<BlockGrads> block_grads_;
    NormParams final_norm_;
    NormGrads final_norm_grads_;
    HeadLossParams head_;
    HeadLossGrads head_grads_;
};

}  // namespace plimsoll::nn
