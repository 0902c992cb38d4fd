#pragma once
/// The whole model of one pipeline stage: embedding, blocks, final norm, fused head and loss.
///
/// Explicit forward and backward; what a micro-batch keeps alive between them is one ForwardState. One control thread.
/// B batch, S sequence, N = B*S tokens, D model.

#include <memory>
#include <vector>

#include "io/token_order.hpp"
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

/// Everything that a forward keeps alive for its backward. Embedding on the first stage, gradient on the last.
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
    EmbeddingPending embedding;       ///< first stage only
};

struct InputBackward
{
    at::Tensor dx_ND; ///< what the stage before receives, undefined on the first
    BackwardPending pending;
};

struct TrainForward
{
    LossSums sums;     ///< last stage only, elsewhere zero
    at::Tensor y_ND;   ///< what the next stage receives; undefined on the last
    ForwardState state;
};

enum class StageEnd
{
    first,
    last,
};

class Model
{
  public:
    /// Views into `params`, which must outlive the model and say which stage this is. `loss_chunks` as HeadLossParams::chunks;
    /// the terms hold for forward(), not for evaluation.
    /// Where parts of `params` come and go, each call below is given `uses` that make them be there in time; else it may be null.
    Model(const ModelSpec& spec, ShardedParams& params, std::int64_t seq_len, std::int64_t loss_chunks,
          double label_smoothing = 0, double z_loss = 0);

    bool is(StageEnd end) const { return end == StageEnd::first ? first_stage_ : last_stage_; }
    /// Room for what stages exchange; `name` in the activation table's words, "x" or "dy".
    at::Tensor make_activation(std::int64_t num_tokens, const char* name) const;

    /// Forward, on the last stage with the loss and the whole backward of head and final norm; `scale` multiplies the loss's gradient at its source.
    /// `x_ND`: what the stage before sent, undefined on the first stage. Ids are read on the first stage, labels and mask on
    /// the last.
    TrainForward forward(const OpContext& ctx, const TokenTensors& tokens, double scale, at::Tensor x_ND = at::Tensor(),
                         UnitUses* uses = nullptr);
    /// Adds all other gradients; consumes the state block by block. `dy_ND`: what the next stage sent, undefined on the last.
    /// Returns what the stage before receives, undefined on the first.
    at::Tensor backward(const OpContext& ctx, ForwardState&& state, at::Tensor dy_ND = at::Tensor(), UnitUses* uses = nullptr);
    /// backward() in two halves, which a schedule may run apart; gradients are the same to the bit. The first needs the parameters,
    /// the second adds to the gradients.
    InputBackward backward_input(const OpContext& ctx, ForwardState&& state, at::Tensor dy_ND = at::Tensor(),
                                 UnitUses* uses = nullptr);
    void backward_weight(const OpContext& ctx, BackwardPending&& pending, UnitUses* uses = nullptr);
    /// Loss only; keeps nothing alive.
    LossSums evaluate(const OpContext& ctx, const TokenTensors& tokens);
    /// One stage of evaluate().
    TrainForward evaluate_stage(const OpContext& ctx, const TokenTensors& tokens, at::Tensor x_ND, UnitUses* uses = nullptr);
    /// Final hidden states [N, D] after the last norm, for tests and generation. @pre one stage
    at::Tensor hidden_states(const OpContext& ctx, const at::Tensor& ids_N);
    /// Logits [N, V], fp32 in a bf16 run. @pre one stage, tp 1
    at::Tensor logits(const OpContext& ctx, const at::Tensor& ids_N);

  private:
    /// Final norm, loss and the backward of both; returns the gradient of `x_ND`.
    at::Tensor head_step(const OpContext& ctx, const TokenTensors& tokens, double scale, at::Tensor x_ND, LossSums& sums);
    NormForward last_norm(const OpContext& ctx, const at::Tensor& x_ND) const;
    /// Embedding and blocks, keeping nothing.
    at::Tensor blocks_forward(const OpContext& ctx, const at::Tensor& ids_N, at::Tensor x_ND, UnitUses* uses);

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

    ModelSpec spec_;
    ShardedParams& params_;
    StageRange range_;
    std::vector<std::int64_t> embedding_units_, block_units_, head_units_;
    at::TensorOptions options_;
    bool first_stage_ = true;
    bool last_stage_ = true;
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
