#pragma once
// A model with every kind of placement, for tests over ranks.

#include "layout/model_spec.hpp"

namespace plimsoll::testing
{

/// Tied, head norms, 2 KV heads of 4: every kind of placement.
inline ModelSpec small_qwen3()
{
    return parse_model_spec(R"({"model_type":"qwen3","vocab_size":37,"hidden_size":16,"intermediate_size":24,
        "num_hidden_layers":3,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":4,"max_position_embeddings":64,
        "rms_norm_eps":1e-6,"rope_theta":10000.0,"hidden_act":"silu","tie_word_embeddings":true})", "test");
}

}  // namespace plimsoll::testing
