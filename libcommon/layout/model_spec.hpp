#pragma once
/// Architecture of a model as a HF-style config.json describes it, and the canonical tensors that follow from it.
///
/// Canonical tensor space: unfused, unpadded, global layer numbers, weights [out, in] for every family,
/// tied tensors once. Names are the same for all families:
///
///     embed_tokens.weight [V, D]            embed_positions.weight [P, D]        (learned positions)
///     layers.I.input_norm.weight [D] (.bias)         before attention
///     layers.I.attn.q_proj.weight [H*E, D] (.bias)   k_proj, v_proj [K*E, D]; o_proj [D, H*E] (.bias)
///     layers.I.attn.q_norm.weight [E]  layers.I.attn.k_norm.weight [E]           (qk-norm)
///     layers.I.mlp_norm.weight [D] (.bias)           before the MLP
///     layers.I.mlp.gate_proj.weight [F, D] (.bias)   (SwiGLU only)
///     layers.I.mlp.up_proj.weight [F, D] (.bias)     down_proj [D, F] (.bias)
///     final_norm.weight [D] (.bias)         head.weight [V, D]                   (absent when tied)
///
/// All functions are pure but read_model_spec(), which reads one file.

#include <cstdint>
#include <string>
#include <vector>

#include "layout/shard_spec.hpp"

namespace plimsoll
{

enum class NormKind { layer_norm, rms_norm };
enum class PositionKind { learned, rope };
enum class Activation { gelu_tanh, gelu_erf, swiglu };

/// RoPE frequencies; `llama3` scaling as in HF's rope_scaling {rope_type: llama3} (transformers 5 writes the same
/// keys and rope_theta into rope_parameters; both forms are read).
struct RopeSpec
{
    double theta = 10000.0;
    bool llama3_scaling = false;
    double factor = 1.0;
    double low_freq_factor = 1.0;
    double high_freq_factor = 4.0;
    std::int64_t original_max_positions = 8192;
};

struct ModelSpec
{
    std::string name;       ///< file stem or known name, for tables
    std::string family;     ///< model_type of config.json: gpt2, llama, mistral, qwen2, qwen3
    std::int64_t vocab = 0;         ///< V
    std::int64_t hidden = 0;        ///< D
    std::int64_t layers = 0;        ///< L
    std::int64_t heads = 0;         ///< H
    std::int64_t kv_heads = 0;      ///< K
    std::int64_t head_dim = 0;      ///< E
    std::int64_t ffn = 0;           ///< F
    std::int64_t max_positions = 0; ///< longest sequence; rows of a learned table
    NormKind norm = NormKind::rms_norm;
    double norm_eps = 1e-5;
    PositionKind position = PositionKind::rope;
    RopeSpec rope;
    Activation activation = Activation::swiglu;
    bool qkv_bias = false;
    bool o_bias = false;
    bool mlp_bias = false;  ///< on gate, up and down
    bool norm_bias = false; ///< LayerNorm families
    bool qk_norm = false;
    bool tied = false;
    double init_std = 0.02; ///< initializer_range
    /// o_proj and down_proj start with init_std / sqrt(2 L): GPT-2 (paper section 2.3; transformers' GPT2 _init_weights).
    /// False for the Llama families, whose transformers classes draw every weight with init_std.
    bool scaled_residual_init = false;
    /// What config.json asks for and this version does not apply, one line each ("dropout 0.1 is not applied").
    std::vector<std::string> notes;
};

/// One canonical tensor with everything that follows from its kind.
struct TensorSpec
{
    std::string name;
    std::vector<std::int64_t> shape;
    UnitKind unit = UnitKind::block;
    std::int64_t layer = -1;           ///< global layer number, -1 outside blocks
    DecayGroup decay = DecayGroup::decay; ///< biases and norms: no_decay
    /// "qkv", "qkv_bias", "gate_up" or "gate_up_bias": neighbours in the flat buffer form one aligned group without gaps, so
    /// that q, k, v are one view [(H + 2K) E, D]. Empty: a group of its own.
    std::string fuse_group;
    ShardSpec shard;                   ///< placement per mesh axis
    InitKind init = InitKind::normal;
    double init_std = 0.0;             ///< of InitKind::normal, with scaled_residual_init applied
    std::vector<std::string> aliases;  ///< "head.weight" for a tied embedding
};

/// Reads and checks a config.json. @throws ConfigError naming file and field: missing, out of range, unknown family,
/// or a feature that this version does not know (refused by name).
ModelSpec read_model_spec(const std::string& path);

/// The same from text; `origin` stands in messages.
ModelSpec parse_model_spec(const std::string& json_text, const std::string& origin);

/// All canonical tensors in unit order: embedding, blocks 0..L-1, final norm and head.
std::vector<TensorSpec> canonical_tensors(const ModelSpec& model);

/// Number of parameters (tied tensors once).
std::int64_t num_parameters(const ModelSpec& model);

/// Parameters that are multiplied with each token's activations: all [out, in] weights of the blocks and the
/// head, also when it is tied. Not counted: embedding look-ups, position table, norms, biases.
std::int64_t num_matmul_parameters(const ModelSpec& model);

/// How a formula counts the T x T attention products.
enum class AttentionFlops
{
    full,   ///< PaLM (arXiv 2204.02311 appendix B), torchtitan: the causal mask is not discounted
    causal, ///< llm.c, Megatron-LM: half of it
};

/// Model FLOPs of one training token, forward and backward, multiply and add counted as two, nothing recomputed:
/// 6 num_matmul_parameters + 12 L H E T (full) or + 6 L H E T (causal). Published MFU figures differ in N: PaLM's and
/// llm.c's 6 N counts every parameter, embedding tables and norms included.
double train_flops_per_token(const ModelSpec& model, std::int64_t seq_len,
                             AttentionFlops attention = AttentionFlops::full);

/// Every field that a checkpoint must share with a run, as "hidden=768", in a fixed order: what decides tensors or maths. Not
/// name, family, initialisation, notes, nor the longest sequence of a RoPE model.
std::vector<std::string> model_fingerprint_fields(const ModelSpec& model);

/// SHA-256 over model_fingerprint_fields(); stable across versions.
std::string model_fingerprint(const ModelSpec& model);

}  // namespace plimsoll
