#pragma once
// A small model with its flat buffers and a step over synthetic samples, for tests of the trainer's parts.

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <memory>

#include "base/rng.hpp"
#include "nn/cpu_allocator.hpp"
#include "nn/train_step.hpp"

namespace plimsoll::test
{

using namespace plimsoll::nn;

inline ModelSpec small_llama()
{
    return parse_model_spec(R"({"model_type":"llama","vocab_size":37,"hidden_size":32,"intermediate_size":48,
        "num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,"max_position_embeddings":64,
        "rms_norm_eps":1e-6,"rope_theta":10000.0,"hidden_act":"silu","tie_word_embeddings":false})", "test");
}

inline ModelSpec small_gpt2()
{
    return parse_model_spec(R"({"model_type":"gpt2","vocab_size":37,"n_embd":32,"n_layer":2,"n_head":4,
        "n_positions":64,"layer_norm_epsilon":1e-5,"activation_function":"gelu_new"})", "test");
}

/// Samples whose labels follow a rule that can be learned (label = 3 id + 1 mod V), with uneven masks.
inline void synthetic_samples(std::int64_t vocab, std::int64_t seq_len, std::int64_t first, std::int64_t num,
                              TokenBatch& batch)
{
    batch = TokenBatch();
    batch.num = num;
    batch.seq_len = seq_len;
    for (std::int64_t sample = first; sample < first + num; ++sample)
    {
        const CounterRng rng(23, RngPurpose::test, static_cast<std::uint64_t>(sample));
        const double keep = 0.25 + 0.75 * rng.uniform(1000000);
        for (std::int64_t s = 0; s < seq_len; ++s)
        {
            const auto at = static_cast<std::uint64_t>(s);
            const auto id = static_cast<std::int64_t>(rng.bits(2 * at) % static_cast<std::uint64_t>(vocab));
            batch.inputs.push_back(id);
            batch.labels.push_back((3 * id + 1) % vocab);
            batch.mask.push_back(rng.uniform(2 * at + 1) < keep ? 1 : 0);
            batch.num_valid += batch.mask.back();
        }
    }
}

struct SmallRun
{
    explicit SmallRun(ModelSpec model_spec, at::ScalarType dtype, std::int64_t micro_batch, int zero_stage = 0)
        : spec(std::move(model_spec))
    {
        layout.zero_stage = zero_stage;
        layout.micro_batch = micro_batch;
        layout.global_batch = 6;
        settings.seq_len = 16;
        settings.micro_batch = micro_batch;
        settings.global_batch = 6;
        settings.schedule.kind = ScheduleKind::constant;
        settings.schedule.lr = 1e-2;
        settings.schedule.total_steps = 1000;
        params = std::make_unique<ShardedParams>(spec, layout, MeshCoordinate(), dtype, install_cpu_allocator());
        params->initialize(9);
        model = std::make_unique<Model>(spec, *params, settings.seq_len, 0);
        groups = make_single_rank_groups();
        make_step();
    }

    void make_step()
    {
        step = std::make_unique<TrainStep>(*model, *params, groups, settings,
                                           [this](std::int64_t first, std::int64_t num, TokenBatch& batch)
                                           {
                                               synthetic_samples(spec.vocab, settings.seq_len, first, num, batch);
                                               if (edit) { edit(batch); }
                                           });
    }

    StepResult run(std::int64_t number)
    {
        return step->run(number, (number - 1) * settings.global_batch, number, {[] { return false; }, 0.0});
    }

    at::Tensor weights() const
    {
        std::vector<at::Tensor> parts;
        for (std::int64_t u = 0; u < params->num_units(); ++u)
        {
            parts.push_back(params->buffer(FlatState::params, u));
        }
        return at::cat(parts);
    }

    c10::AutoGradMode no_autograd{false};
    ModelSpec spec;
    ParallelLayout layout;
    StepSettings settings;
    std::unique_ptr<ShardedParams> params;
    std::unique_ptr<Model> model;
    RankGroups groups;
    std::unique_ptr<TrainStep> step;
    std::function<void(TokenBatch&)> edit;
};

}  // namespace plimsoll::test
