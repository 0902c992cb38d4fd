// The whole model against AutogradModel, with the gates of decision 22 (fp64: loss and gradient norm 1e-11 relative, each
// gradient |d| <= 1e-11 (|g| + 1e-2 |g|_global); fp32: loss and norm 1e-5, |d| <= 5e-6 |g| + 1e-7 |g|_global). K biases are not
// compared: their true gradient is zero (softmax does not change when a constant is added to all scores of a row).

#include "nn/model.hpp"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/rng.hpp"
#include "nn/cpu_allocator.hpp"
#include "torch/model/autograd_model.hpp"

using namespace plimsoll;
using namespace plimsoll::nn;

namespace
{

struct Case
{
    const char* name;
    const char* config;
};

const Case cases[] = {
    {"Gpt2", R"({"model_type":"gpt2","vocab_size":61,"n_embd":32,"n_layer":3,"n_head":4,"n_positions":24,
                 "layer_norm_epsilon":1e-5,"activation_function":"gelu_new"})"},
    {"LlamaGqa", R"({"model_type":"llama","vocab_size":53,"hidden_size":32,"intermediate_size":56,"num_hidden_layers":3,
                 "num_attention_heads":4,"num_key_value_heads":2,"max_position_embeddings":64,"rms_norm_eps":1e-6,
                 "rope_theta":10000.0,"hidden_act":"silu","tie_word_embeddings":false})"},
    {"LlamaTiedScaledRope", R"({"model_type":"llama","vocab_size":40,"hidden_size":24,"intermediate_size":40,
                 "num_hidden_layers":2,"num_attention_heads":3,"num_key_value_heads":1,"max_position_embeddings":64,
                 "rms_norm_eps":1e-5,"rope_theta":500000.0,"hidden_act":"silu","tie_word_embeddings":true,
                 "attention_bias":true,"mlp_bias":true,
                 "rope_scaling":{"rope_type":"llama3","factor":8.0,"low_freq_factor":1.0,"high_freq_factor":4.0,
                                 "original_max_position_embeddings":16}})"},
    {"Qwen2", R"({"model_type":"qwen2","vocab_size":47,"hidden_size":32,"intermediate_size":48,"num_hidden_layers":2,
                 "num_attention_heads":4,"num_key_value_heads":2,"max_position_embeddings":64,"rms_norm_eps":1e-6,
                 "rope_theta":1000000.0,"hidden_act":"silu","tie_word_embeddings":true})"},
    {"Qwen3", R"({"model_type":"qwen3","vocab_size":47,"hidden_size":32,"intermediate_size":48,"num_hidden_layers":2,
                 "num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,"max_position_embeddings":64,
                 "rms_norm_eps":1e-6,"rope_theta":1000000.0,"hidden_act":"silu","tie_word_embeddings":false})"},
};

/// Random ids and labels, and a mask that leaves a different number of tokens in each sequence.
TokenBatch random_batch(const ModelSpec& spec, std::int64_t batch, std::int64_t seq_len)
{
    const CounterRng rng(11, RngPurpose::test);
    TokenBatch made;
    made.num = batch;
    made.seq_len = seq_len;
    for (std::int64_t i = 0; i < batch * seq_len; ++i)
    {
        const auto at = static_cast<std::uint64_t>(i);
        made.inputs.push_back(static_cast<std::int64_t>(rng.bits(3 * at) % static_cast<std::uint64_t>(spec.vocab)));
        made.labels.push_back(static_cast<std::int64_t>(rng.bits(3 * at + 1) % static_cast<std::uint64_t>(spec.vocab)));
        const std::int64_t row = i / seq_len;
        made.mask.push_back(rng.uniform(3 * at + 2) < 0.3 + 0.3 * static_cast<double>(row) ? 1 : 0);
        made.num_valid += made.mask.back();
    }
    return made;
}

/// 1 / (1 - p) where an element is kept, 0 where it is dropped, as docs/data_order.md says it.
at::Tensor dropout_factors(std::uint64_t seed, std::int64_t step, std::int64_t first_sample, std::int64_t layer, std::uint64_t site,
                           double rate, const std::vector<std::int64_t>& shape_BSD)
{
    const at::Tensor factors = at::zeros(shape_BSD, at::TensorOptions().dtype(at::kDouble));
    const std::int64_t sample_elements = shape_BSD[1] * shape_BSD[2];
    for (std::int64_t b = 0; b < shape_BSD[0]; ++b)
    {
        const CounterRng rng(seed, RngPurpose::dropout,
                             hash_numbers({static_cast<std::uint64_t>(step), static_cast<std::uint64_t>(first_sample + b),
                                           static_cast<std::uint64_t>(layer), site}));
        for (std::int64_t i = 0; i < sample_elements; ++i)
        {
            const bool kept = rng.word(static_cast<std::uint64_t>(i)) >= rate * 0x1p32;
            factors.mutable_data_ptr<double>()[b * sample_elements + i] = kept ? 1.0 / (1.0 - rate) : 0.0;
        }
    }
    return factors;
}

class WholeModel : public testing::TestWithParam<Case>
{
  protected:
    void compare(at::ScalarType dtype, double loss_gate, double norm_gate, double own_gate, double global_gate,
                 DropoutRates rates = {})
    {
        const ModelSpec spec = parse_model_spec(GetParam().config, "test");
        const std::int64_t batch = 3, seq_len = 17;
        ParallelLayout layout;
        ShardedParams params(spec, layout, MeshCoordinate(), dtype, install_cpu_allocator());
        params.initialize(5);
        // Biases and norm weights start as zeros and ones, which would hide a missing term: disturb all.
        at::manual_seed(3);
        std::map<std::string, at::Tensor> weights;
        for (const TensorSpec& tensor : canonical_tensors(spec))
        {
            at::Tensor view = params.view(FlatState::params, tensor.name);
            view.add_(at::randn(view.sizes(), view.options()), 0.1);
            weights[tensor.name] = view;
        }
        TokenBatch tokens = random_batch(spec, batch, seq_len);
        test::AutogradModel oracle(spec, weights);
        const std::uint64_t seed = 77;
        const std::int64_t step = 5, first_sample = 40;
        const bool drops = rates.hidden > 0 || rates.embedding > 0;
        if (drops)
        {
            oracle.set_dropout(
                [&](std::uint64_t site, std::int64_t layer)
                {
                    const double rate = site == 1 ? rates.embedding : rates.hidden;
                    return dropout_factors(seed, step, first_sample, layer, site, rate, {batch, seq_len, spec.hidden}).to(dtype);
                });
        }
        const TokenTensors tensors = token_tensors(tokens);
        const auto matrix = [&](const at::Tensor& t) { return t.view({batch, seq_len}).clone(); };
        const at::Tensor oracle_loss =
            oracle.loss_sum(matrix(tensors.ids_N), matrix(tensors.labels_N), matrix(tensors.mask_N));
        const double scale = 1.0 / static_cast<double>(tokens.num_valid);
        (oracle_loss * scale).backward();

        const c10::AutoGradMode no_autograd(false);
        Stream stream;
        OpContext ctx;
        const auto tp = make_self_communicator("tp");
        ctx.stream = &stream;
        ctx.tp = tp.get();
        ctx.batch = batch;
        ctx.seq_len = seq_len;
        OpContext training = ctx;
        training.dropout = rates;
        training.seed = seed;
        training.step = step;
        training.first_sample = first_sample;
        Model model(spec, params, seq_len, 0);
        TrainForward done = model.forward(training, tensors, scale);
        model.backward(training, std::move(done.state));

        // The halves of backward, apart: the same bits.
        {
            std::vector<at::Tensor> plain;
            for (std::int64_t u = 0; u < params.num_units(); ++u) { plain.push_back(params.buffer(FlatState::grads, u).clone()); }
            params.zero_grads();
            TrainForward again = model.forward(training, tensors, scale);
            InputBackward halves = model.backward_input(training, std::move(again.state));
            model.backward_weight(training, std::move(halves.pending));
            for (std::int64_t u = 0; u < params.num_units(); ++u)
            {
                EXPECT_TRUE(params.buffer(FlatState::grads, u).equal(plain[static_cast<std::size_t>(u)]))
                    << params.flat().units[static_cast<std::size_t>(u)].name;
            }
        }

        EXPECT_EQ(done.sums.count, tokens.num_valid);
        const double expected = oracle_loss.item<double>();
        EXPECT_NEAR(done.sums.loss, expected, loss_gate * expected);
        const double evaluated = model.evaluate(ctx, tensors).loss;
        if (drops) { EXPECT_GT(std::abs(evaluated - expected), 1e-4 * expected) << "evaluation drops nothing"; }
        else { EXPECT_NEAR(evaluated, expected, loss_gate * expected); }

        double global_squares = 0, squares = 0;
        for (const auto& [name, leaf] : oracle.leaves())
        {
            global_squares += leaf.grad().to(at::kDouble).pow(2).sum().item<double>();
            squares += params.view(FlatState::grads, name).to(at::kDouble).pow(2).sum().item<double>();
        }
        const double global = std::sqrt(global_squares);
        EXPECT_NEAR(std::sqrt(squares), global, norm_gate * global);
        for (const auto& [name, leaf] : oracle.leaves())
        {
            if (name.find("k_proj.bias") != std::string::npos) { continue; }
            const at::Tensor expected_grad = leaf.grad().to(at::kDouble);
            const at::Tensor got = params.view(FlatState::grads, name).to(at::kDouble);
            const double difference = (got - expected_grad).norm().item<double>();
            EXPECT_LE(difference, own_gate * expected_grad.norm().item<double>() + global_gate * global) << name;
        }
    }
};

}  // namespace

TEST_P(WholeModel, MatchesAutogradInFp64) { compare(at::kDouble, 1e-11, 1e-11, 1e-11, 1e-13); }

TEST_P(WholeModel, MatchesAutogradInFp32) { compare(at::kFloat, 1e-5, 1e-5, 5e-6, 1e-7); }

TEST_P(WholeModel, WithDropoutMatchesAutogradUnderTheSameMaskInFp64)
{
    compare(at::kDouble, 1e-11, 1e-11, 1e-11, 1e-13, {0.1, 0.3});
}

TEST_P(WholeModel, WithHiddenDropoutMatchesAutogradInFp32) { compare(at::kFloat, 1e-5, 1e-5, 5e-6, 1e-7, {0.5, 0}); }

INSTANTIATE_TEST_SUITE_P(Families, WholeModel, testing::ValuesIn(cases),
                         [](const testing::TestParamInfo<Case>& param) { return std::string(param.param.name); });
