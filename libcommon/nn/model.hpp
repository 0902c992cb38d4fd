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
    double loss = 0;        ///< nats, over the tokens whose mask is 1
    std::int64_t count = 0; ///< of these tokens
    LossSums& operator+=(const LossSums& other)
    {
        loss += other.loss;
        count += other.count;
        return *this;
    }
};

/// Everything that a forward keeps alive for its backward.
struct ForwardState
{
    EmbeddingSaved embedding;
    std::vector<BlockSaved> blocks;
    NormSaved final_norm;
    at::Tensor dnormed_ND; ///< gradient of the final norm's output, made by the fused loss
};

struct TrainForward
{
    LossSums sums;
    ForwardState state;
};

class Model
{
  public:
    /// Views into `params`, which must outlive the model. `loss_chunks` as HeadLossParams::chunks.
    Model(const ModelSpec& spec, ShardedParams& params, std::int64_t seq_len, std::int64_t loss_chunks);

    /// Forward, loss and the head's gradients; `scale` multiplies the loss's gradient at its source.
    TrainForward forward(const OpContext& ctx, const TokenTensors& tokens, double scale);
    /// Adds all other gradients; consumes the state block by block.
    void backward(const OpContext& ctx, ForwardState&& state);
    /// Loss only; keeps nothing alive.
    LossSums evaluate(const OpContext& ctx, const TokenTensors& tokens);
    /// Final hidden states [N, D] after the last norm, for tests and generation.
    at::Tensor hidden_states(const OpContext& ctx, const at::Tensor& ids_N);
    /// Logits [N, V].
    at::Tensor logits(const OpContext& ctx, const at::Tensor& ids_N);

  private:
    ModelSpec spec_;
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
