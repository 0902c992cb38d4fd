// Documents packed into samples compute what each computes alone: loss and all gradients, in fp64, against AutogradModel, which sees
// one document at a time and knows nothing of masks.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <map>

#include "nn/model.hpp"
#include "torch/model/autograd_model.hpp"
#include "torch/model/small_run.hpp"

using namespace plimsoll;
using namespace plimsoll::nn;

namespace
{

constexpr std::int64_t masked_batch = 2, masked_seq_len = 16;

ModelSpec masked_qwen3()
{
    return parse_model_spec(R"({"model_type":"qwen3","vocab_size":37,"hidden_size":32,"intermediate_size":48,"num_hidden_layers":2,
        "num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,"max_position_embeddings":64,"rms_norm_eps":1e-6,
        "rope_theta":1000000.0,"hidden_act":"silu","tie_word_embeddings":false})", "test");
}

/// Whole samples; uneven documents; one of one token; a document for each token.
std::vector<std::vector<std::int64_t>> masked_starts()
{
    std::vector<std::int64_t> single;
    for (std::int64_t n = 0; n <= masked_batch * masked_seq_len; ++n) { single.push_back(n); }
    return {{0, 16, 32}, {0, 5, 16, 17, 23, 32}, {0, 1, 2, 15, 16, 31, 32}, single};
}

class MaskedModel
{
  public:
    explicit MaskedModel(const ModelSpec& spec, at::ScalarType dtype = at::kDouble)
        : spec_(spec), params_(spec, ParallelLayout(), MeshCoordinate(), dtype, install_cpu_allocator())
    {
        at::set_num_threads(1);
        params_.initialize(5);
        at::manual_seed(3);
        for (const TensorSpec& tensor : canonical_tensors(spec))
        {
            at::Tensor view = params_.view(FlatState::params, tensor.name);
            view.add_(at::randn(view.sizes(), view.options()), 0.1);
        }
    }

    /// Loss of the batch; gradients are left in params().
    LossSums run(TokenBatch& batch)
    {
        const c10::AutoGradMode no_autograd(false);
        Stream stream;
        const auto tp = make_self_communicator("tp");
        OpContext ctx;
        ctx.stream = &stream;
        ctx.tp = tp.get();
        ctx.batch = batch.num;
        ctx.seq_len = batch.seq_len;
        ctx.document_starts = batch.document_starts.empty() ? nullptr : &batch.document_starts;
        Model model(spec_, params_, batch.seq_len, 0);
        params_.zero_grads();
        TrainForward done = model.forward(ctx, token_tensors(batch), 1.0 / 50);
        model.backward(ctx, std::move(done.state));
        EXPECT_EQ(model.evaluate(ctx, token_tensors(batch)).loss, done.sums.loss);
        return done.sums;
    }

    ShardedParams& params() { return params_; }
    std::map<std::string, at::Tensor> tensors(FlatState state) const
    {
        std::map<std::string, at::Tensor> all;
        for (const TensorSpec& tensor : canonical_tensors(spec_)) { all[tensor.name] = params_.view(state, tensor.name).clone(); }
        return all;
    }

  private:
    ModelSpec spec_;
    ShardedParams params_;
};

}  // namespace

TEST(DocumentMasks, APackedBatchIsTheSumOfItsDocumentsAlone)
{
    for (const ModelSpec& spec : {test::small_gpt2(), test::small_llama(), masked_qwen3()})
    {
        for (const std::vector<std::int64_t>& starts : masked_starts())
        {
            SCOPED_TRACE(::testing::Message() << spec.name << " of " << starts.size() - 1 << " documents");
            TokenBatch batch;
            test::synthetic_samples(spec.vocab, masked_seq_len, 0, masked_batch, batch);
            batch.document_starts = starts;
            MaskedModel packed(spec);
            const LossSums sums = packed.run(batch);

            test::AutogradModel alone(spec, packed.tensors(FlatState::params));
            const TokenTensors tokens = token_tensors(batch);
            double loss = 0;
            for (std::size_t i = 0; i + 1 < starts.size(); ++i)
            {
                const auto document = [&](const at::Tensor& all)
                { return all.narrow(0, starts[i], starts[i + 1] - starts[i]).view({1, -1}).clone(); };
                const at::Tensor part = alone.loss_sum(document(tokens.ids_N), document(tokens.labels_N), document(tokens.mask_N));
                loss += part.item<double>();
                if (part.requires_grad()) { (part / 50).backward(); }
            }
            EXPECT_NEAR(sums.loss, loss, 1e-11 * loss);
            double squares = 0;
            for (const auto& entry : alone.leaves())
            {
                if (entry.second.grad().defined()) { squares += entry.second.grad().pow(2).sum().item<double>(); }
            }
            for (const auto& [name, gradient] : packed.tensors(FlatState::grads))
            {
                if (name.find("k_proj.bias") != std::string::npos) { continue; }  // truly zero
                const at::Tensor& leaf = alone.leaves().at(name);
                const at::Tensor expected = leaf.grad().defined() ? leaf.grad() : at::zeros_like(leaf);
                const double allowed = 1e-11 * (expected.norm().item<double>() + 1e-2 * std::sqrt(squares));
                EXPECT_LE((gradient - expected).norm().item<double>(), allowed) << name;
            }
        }
    }
}

TEST(DocumentMasks, OfWholeSamplesHaveTheBitsOfNone)
{
    for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16})
    {
        for (const ModelSpec& spec : {test::small_gpt2(), masked_qwen3()})
        {
            TokenBatch batch;
            test::synthetic_samples(spec.vocab, masked_seq_len, 0, masked_batch, batch);
            MaskedModel model(spec, dtype);
            const double plain = model.run(batch).loss;
            const auto expected = model.tensors(FlatState::grads);
            batch.document_starts = {0, 16, 32};
            EXPECT_EQ(model.run(batch).loss, plain);
            for (const auto& [name, gradient] : model.tensors(FlatState::grads))
            {
                EXPECT_TRUE(at::equal(gradient, expected.at(name))) << name;
            }
            batch.document_starts = {0, 7, 16, 32};
            EXPECT_NE(model.run(batch).loss, plain);
        }
    }
}

TEST(DocumentMasks, TheBatchOfARankSaysWhereDocumentsBegin)
{
    // A step's middle and backward use the micro-batch's own borders.
    const auto losses = [](std::int64_t micro_batch)
    {
        test::SmallRun run(test::small_llama(), at::kDouble, micro_batch);
        run.settings.document_masks = true;
        run.edit = [](TokenBatch& batch)
        {
            for (std::int64_t row = 0; row < batch.num; ++row)
            {
                const std::int64_t first = row * batch.seq_len;
                batch.document_starts.insert(batch.document_starts.end(),
                                             {first, first + 1 + batch.inputs[static_cast<std::size_t>(first)] % 14});
            }
            batch.document_starts.push_back(batch.num * batch.seq_len);
        };
        run.make_step();
        std::vector<double> all;
        for (std::int64_t step = 1; step <= 3; ++step) { all.push_back(run.run(step).loss()); }
        return all;
    };
    const std::vector<double> together = losses(6), single = losses(1);
    for (std::size_t i = 0; i < together.size(); ++i) { EXPECT_NEAR(single[i], together[i], 1e-11 * together[i]); }
}
