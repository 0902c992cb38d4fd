#pragma once
// Small models and layouts for tests of the plan.

#include "plan/memory_plan.hpp"

namespace plimsoll::test
{

/// One layer: V 10, D 8, H 2, K 1, E 4, F 12.
inline ModelSpec tiny_llama(int layers = 1)
{
    return parse_model_spec(R"({"model_type":"llama","vocab_size":10,"hidden_size":8,"intermediate_size":12,
        "num_hidden_layers":)" + std::to_string(layers) + R"(,"num_attention_heads":2,"num_key_value_heads":1,
        "max_position_embeddings":64,"rms_norm_eps":1e-6,"rope_theta":10000.0,"hidden_act":"silu",
        "tie_word_embeddings":false})", "test");
}

/// Eight layers, eight heads, tied: divides by every tp and pp up to 8.
inline ModelSpec eight_layer_gpt2()
{
    return parse_model_spec(R"({"model_type":"gpt2","vocab_size":61,"n_embd":64,"n_layer":8,"n_head":8,"n_positions":64,
        "layer_norm_epsilon":1e-5,"activation_function":"gelu_new"})", "test");
}

inline ModelSpec eight_layer_qwen3()
{
    return parse_model_spec(R"({"model_type":"qwen3","vocab_size":61,"hidden_size":64,"intermediate_size":96,
        "num_hidden_layers":8,"num_attention_heads":8,"num_key_value_heads":4,"head_dim":8,"max_position_embeddings":64,
        "rms_norm_eps":1e-6,"rope_theta":10000.0,"hidden_act":"silu","tie_word_embeddings":true})", "test");
}

inline ParallelLayout layout_of(std::int64_t dp, std::int64_t tp, std::int64_t pp, int zero = 0, std::int64_t micro_batch = 1,
                                std::int64_t accumulation = 1)
{
    ParallelLayout layout;
    layout.dp = dp;
    layout.tp = tp;
    layout.pp = pp;
    layout.zero_stage = zero;
    layout.micro_batch = micro_batch;
    layout.global_batch = dp * micro_batch * accumulation;
    return layout;
}

inline MemoryLimit limit_of(std::int64_t bytes)
{
    MemoryLimit limit;
    limit.bytes = bytes;
    limit.source = "memory-limit";
    return limit;
}

inline StepInputs inputs_of(const ModelSpec& model, const ParallelLayout& layout, std::int64_t seq_len)
{
    StepInputs inputs;
    inputs.model = model;
    inputs.layout = layout;
    inputs.policies.seq_len = seq_len;
    return inputs;
}

}  // namespace plimsoll::test
