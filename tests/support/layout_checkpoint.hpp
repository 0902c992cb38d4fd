#pragma once
/// Checkpoints with known content as a run of any layout would save them, and small models for them.

#include <string>
#include <vector>

#include "comm/thread_communicator.hpp"
#include "io/checkpoint_layout.hpp"
#include "layout/model_spec.hpp"
#include "support/synthetic_checkpoint.hpp"

namespace plimsoll::testing
{

inline ParallelLayout degrees(std::int64_t tp, std::int64_t pp, std::int64_t dp, int zero)
{
    ParallelLayout layout;
    layout.tp = tp;
    layout.pp = pp;
    layout.dp = layout.global_batch = dp;
    layout.zero_stage = zero;
    return layout;
}

inline ParallelLayout with_shards(std::int64_t shards, ParallelLayout layout)
{
    layout.dp_shard = shards;
    return layout;
}

/// Adam's states of a run in one precision.
inline std::vector<StateType> adam_states(Dtype dtype = Dtype::f32)
{
    std::vector<StateType> states;
    for (const CheckpointState state : {CheckpointState::model, CheckpointState::exp_avg, CheckpointState::exp_avg_sq})
    {
        StateType type;
        type.state = state;
        type.dtype = dtype;
        states.push_back(type);
    }
    return states;
}

/// Parameters in bf16, master weights and moments in f32.
inline std::vector<StateType> mixed_states()
{
    std::vector<StateType> states = adam_states();
    states[0].dtype = Dtype::bf16;
    StateType master;
    master.state = CheckpointState::master;
    states.insert(states.begin() + 1, master);
    return states;
}

inline CheckpointMeta meta_of_model(std::int64_t step, const std::string& config, const ParallelLayout& layout)
{
    const ModelSpec model = parse_model_spec(config, "config.json");
    std::vector<std::string> names;
    CheckpointMeta meta = make_meta(step, {});
    OptimizerGroup other = meta.trainer.groups[0];
    other.name = "no_decay";
    other.weight_decay = 0;
    meta.trainer.groups.push_back(other);
    for (const TensorSpec& tensor : canonical_tensors(model))
    {
        meta.trainer.groups[tensor.decay == DecayGroup::decay ? 0 : 1].tensors.push_back(tensor.name);
        for (const std::string& alias : tensor.aliases) { meta.aliases[alias] = tensor.name; }
    }
    meta.model_config = config;
    meta.model_fingerprint = model_fingerprint(model);
    meta.layout_note = layout_text(layout);
    return meta;
}

/// Saved by as many ranks (threads) as the layout has, each with the boxes that it holds.
inline std::string save_in_layout(const std::string& root, std::int64_t step, const std::string& config,
                                  const ParallelLayout& layout, const std::vector<StateType>& states)
{
    const CheckpointMeta meta = meta_of_model(step, config, layout);
    const auto held = held_boxes(parse_model_spec(config, "config.json"), layout, states);
    std::string path;
    run_ranks(layout.world(), [&](Communicator& world) {
        CheckpointWriter writer(root, meta, held[static_cast<std::size_t>(world.rank())], world);
        for (const CheckpointBox& box : held[static_cast<std::size_t>(world.rank())])
        {
            if (!writer.assigned(box.tensor.state, box.tensor.name, box.box)) { continue; }
            writer.write(box.tensor.state, box.tensor.name, box.box, box_content(box.tensor, box.box, step).data());
        }
        const std::string saved = writer.commit().path;
        if (world.rank() == 0) { path = saved; }
    });
    return path;
}

/// Vocabulary that no tp divides, two KV heads, norms of one kind.
inline std::string small_llama_config(bool tied = false)
{
    return std::string(R"({"model_type": "llama", "vocab_size": 37, "hidden_size": 8, "intermediate_size": 12,
        "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
        "tie_word_embeddings": )") +
           (tied ? "true}" : "false}");
}

/// Biases, learned positions, a tied embedding.
inline std::string small_gpt2_config()
{
    return R"({"model_type": "gpt2", "vocab_size": 41, "n_embd": 8, "n_layer": 3, "n_head": 4, "n_positions": 16})";
}

/// One head of one element, width 1: tensors of shape [1, 1] and [1].
inline std::string tiniest_config()
{
    return R"({"model_type": "llama", "vocab_size": 2, "hidden_size": 2, "intermediate_size": 1, "num_hidden_layers": 2,
        "num_attention_heads": 1, "num_key_value_heads": 1, "head_dim": 2, "max_position_embeddings": 4,
        "tie_word_embeddings": false})";
}

}  // namespace plimsoll::testing
