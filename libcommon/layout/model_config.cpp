// config.json -> ModelSpec. Field names, defaults and what each class ignores: transformers 5.24,
// models/{gpt2,llama,mistral,qwen2,qwen3}/configuration_*.py and modeling_*.py.

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string_view>

#include "base/error.hpp"
#include "layout/json_fields.hpp"
#include "layout/model_spec.hpp"

namespace plimsoll
{
namespace
{

// Bounds that keep every product of sizes far from 2^63.
constexpr std::int64_t max_width = std::int64_t{1} << 20;
constexpr std::int64_t max_layers = 1 << 16;
constexpr std::int64_t max_heads = 1 << 16;
constexpr std::int64_t max_vocab = std::int64_t{1} << 30;
constexpr std::int64_t max_sequence = std::int64_t{1} << 32;

constexpr std::array<std::string_view, 5> families{{"gpt2", "llama", "mistral", "qwen2", "qwen3"}};

template<std::size_t N>
bool contains(const std::array<std::string_view, N>& list, std::string_view text)
{
    return std::find(list.begin(), list.end(), text) != list.end();
}

// Keys that describe files, generation or another use of the model, and change nothing that is computed here.
constexpr std::array<std::string_view, 29> keys_without_effect{
    {"architectures", "bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "sep_token_id",
     "cls_token_id", "decoder_start_token_id", "torch_dtype", "dtype", "transformers_version", "use_cache",
     "pretraining_tp", "auto_map", "_name_or_path", "name_or_path", "task_specific_params", "n_ctx",
     "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj", "max_window_layers",
     "reorder_and_upcast_attn", "_attn_implementation_autoset", "return_dict", "output_attentions", "output_hidden_states"}};

// Keys that the reader below asks for, in any family.
constexpr std::array<std::string_view, 43> keys_read{
    {"model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
     "num_key_value_heads", "head_dim", "max_position_embeddings", "rms_norm_eps", "rope_theta", "rope_scaling",
     "rope_parameters", "tie_word_embeddings", "attention_bias", "mlp_bias", "hidden_act", "initializer_range",
     "sliding_window", "use_sliding_window", "layer_types", "quantization_config", "attn_logit_softcapping",
     "final_logit_softcapping", "query_pre_attn_scalar", "partial_rotary_factor", "n_embd", "n_layer", "n_head",
     "n_positions", "n_inner", "activation_function", "layer_norm_epsilon", "scale_attn_weights",
     "scale_attn_by_inverse_layer_idx", "add_cross_attention", "is_encoder_decoder", "attention_dropout", "attn_pdrop",
     "embd_pdrop", "resid_pdrop", "hidden_dropout", "no_rope_layers"}};

constexpr std::array<std::string_view, 8> moe_keys{{"num_experts", "num_local_experts", "n_routed_experts", "num_experts_per_tok",
                                                    "moe_intermediate_size", "n_shared_experts", "decoder_sparse_step",
                                                    "mlp_only_layers"}};

[[noreturn]] void refuse(const JsonFields& config, const std::string& key, std::string_view feature)
{
    throw ConfigError(fmt::format("{} asks for {} (not known in this version)", config.name(key), feature));
}

void refuse_experts(const JsonFields& config)
{
    for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts", "moe_intermediate_size"})
    {
        if (config.optional_number(key, 0) > 0) { refuse(config, key, "mixture of experts"); }
    }
}

void refuse_window(const JsonFields& config, const ModelSpec& model)
{
    // Qwen reads sliding_window only when use_sliding_window says so; the other families read it whenever it is there.
    const bool is_qwen = model.family == "qwen2" || model.family == "qwen3";
    if (config.optional_bool("use_sliding_window", false)) { refuse(config, "use_sliding_window", "sliding window attention"); }
    if (!is_qwen && config.has("sliding_window"))
    {
        const std::int64_t window = config.required_int("sliding_window", 1, max_sequence);
        if (window < model.max_positions)
        {
            refuse(config, "sliding_window", fmt::format("sliding window attention of {} tokens", window));
        }
    }
    if (!config.has("layer_types")) { return; }
    const nlohmann::json& types = config.value("layer_types");
    VALIDATE(types.is_array(), ConfigError, "{} must be a list", config.name("layer_types"));
    for (const nlohmann::json& type : types)
    {
        VALIDATE(type.is_string(), ConfigError, "{} must be a list of texts", config.name("layer_types"));
        if (type != "full_attention") { refuse(config, "layer_types", fmt::format("'{}'", type.get<std::string>())); }
    }
}

void refuse_unknown_features(const JsonFields& config, const ModelSpec& model)
{
    refuse_experts(config);
    refuse_window(config, model);
    if (config.has("quantization_config")) { refuse(config, "quantization_config", "quantized weights"); }
    for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"})
    {
        if (config.has(key)) { refuse(config, key, "soft-capped logits"); }
    }
    for (const char* key : {"query_pre_attn_scalar", "attention_multiplier", "residual_multiplier", "embedding_multiplier",
                            "logits_scaling", "no_rope_layers"})
    {
        if (config.has(key)) { refuse(config, key, fmt::format("'{}'", key)); }
    }
    if (config.optional_number("partial_rotary_factor", 1.0) != 1.0)
    {
        refuse(config, "partial_rotary_factor", "rotation of a part of each head");
    }
    for (const char* key : {"is_encoder_decoder", "add_cross_attention"})
    {
        if (config.optional_bool(key, false)) { refuse(config, key, "an encoder"); }
    }
    if (!config.optional_bool("scale_attn_weights", true))
    {
        refuse(config, "scale_attn_weights", "attention without its scale");
    }
    if (config.optional_bool("scale_attn_by_inverse_layer_idx", false))
    {
        refuse(config, "scale_attn_by_inverse_layer_idx", "attention scaled by layer number");
    }
}

RopeSpec read_rope(const JsonFields& config)
{
    RopeSpec rope;
    rope.theta = config.optional_number("rope_theta", 10000.0);
    const char* key = config.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
    const std::optional<JsonFields> scaling = config.optional_object(key);
    if (scaling)
    {
        if (scaling->has("full_attention") || scaling->has("sliding_attention"))
        {
            refuse(config, key, "rotary parameters of their own for each layer type");
        }
        rope.theta = scaling->optional_number("rope_theta", rope.theta);
        // "type" is the older name of "rope_type"; both may be there.
        const std::string type = scaling->optional_string("rope_type", scaling->optional_string("type", "default"));
        if (scaling->optional_number("partial_rotary_factor", 1.0) != 1.0)
        {
            refuse(*scaling, "partial_rotary_factor", "rotation of a part of each head");
        }
        if (type == "llama3")
        {
            rope.llama3_scaling = true;
            rope.factor = scaling->required_number("factor");
            rope.low_freq_factor = scaling->required_number("low_freq_factor");
            rope.high_freq_factor = scaling->required_number("high_freq_factor");
            rope.original_max_positions = scaling->required_int("original_max_position_embeddings", 1, max_sequence);
            VALIDATE(rope.factor >= 1, ConfigError, "{} must be at least 1 (it is {})", scaling->name("factor"), rope.factor);
            VALIDATE(rope.low_freq_factor > 0 && rope.high_freq_factor > rope.low_freq_factor, ConfigError,
                     "{} {} must lie above low_freq_factor {}, and both above 0", scaling->name("high_freq_factor"),
                     rope.high_freq_factor, rope.low_freq_factor);
        }
        else if (type != "default")
        {
            throw ConfigError(fmt::format("{} '{}' is not known (known: default, llama3)", config.name(key) + ".rope_type",
                                          type));
        }
    }
    VALIDATE(rope.theta > 0, ConfigError, "{} must be above 0 (it is {})", config.name("rope_theta"), rope.theta);
    return rope;
}

Activation read_gelu(const JsonFields& config)
{
    const std::string name = config.optional_string("activation_function", "gelu_new");
    if (name == "gelu_new" || name == "gelu_pytorch_tanh" || name == "gelu_fast") { return Activation::gelu_tanh; }
    VALIDATE(name == "gelu", ConfigError, "{} '{}' is not known for gpt2 (known: gelu_new, gelu_pytorch_tanh, gelu)",
             config.name("activation_function"), name);
    return Activation::gelu_erf;
}

void read_gpt2(const JsonFields& config, ModelSpec& model)
{
    model.hidden = config.required_int("n_embd", 1, max_width);
    model.layers = config.required_int("n_layer", 1, max_layers);
    model.heads = config.required_int("n_head", 1, max_heads);
    model.kv_heads = model.heads;
    VALIDATE(model.hidden % model.heads == 0, ConfigError, "{} {} cannot be divided into n_head {} heads",
             config.name("n_embd"), model.hidden, model.heads);
    model.head_dim = model.hidden / model.heads;
    model.ffn = config.optional_int("n_inner", 4 * model.hidden, 1, 4 * max_width);
    model.max_positions = config.required_int("n_positions", 1, max_sequence);
    model.norm = NormKind::layer_norm;
    model.norm_eps = config.optional_number("layer_norm_epsilon", 1e-5);
    model.position = PositionKind::learned;
    model.activation = read_gelu(config);
    model.qkv_bias = model.o_bias = model.mlp_bias = model.norm_bias = true;
    model.tied = config.optional_bool("tie_word_embeddings", true);
    model.scaled_residual_init = true;
}

void read_heads(const JsonFields& config, ModelSpec& model)
{
    model.heads = config.required_int("num_attention_heads", 1, max_heads);
    model.kv_heads = config.optional_int("num_key_value_heads", model.heads, 1, max_heads);
    VALIDATE(model.heads % model.kv_heads == 0, ConfigError,
             "{} {} cannot be shared by num_attention_heads {} (each key-value head serves the same number of heads)",
             config.name("num_key_value_heads"), model.kv_heads, model.heads);
    if (config.has("head_dim")) { model.head_dim = config.required_int("head_dim", 1, max_heads); }
    else if (model.family == "qwen3") { model.head_dim = 128; }
    else
    {
        VALIDATE(model.hidden % model.heads == 0, ConfigError,
                 "{} {} cannot be divided into num_attention_heads {} heads (no head_dim is given)",
                 config.name("hidden_size"), model.hidden, model.heads);
        model.head_dim = model.hidden / model.heads;
    }
    VALIDATE(model.head_dim % 2 == 0, ConfigError, "{} {} is odd (rotary embedding turns pairs)",
             config.name("head_dim"), model.head_dim);
    VALIDATE(model.heads * model.head_dim <= 4 * max_width, ConfigError, "{} {} x head_dim {} is too large (at most {})",
             config.name("num_attention_heads"), model.heads, model.head_dim, 4 * max_width);
}

void read_llama_like(const JsonFields& config, ModelSpec& model)
{
    model.hidden = config.required_int("hidden_size", 1, max_width);
    model.layers = config.required_int("num_hidden_layers", 1, max_layers);
    read_heads(config, model);
    model.ffn = config.required_int("intermediate_size", 1, 4 * max_width);
    model.max_positions = config.required_int("max_position_embeddings", 1, max_sequence);
    model.norm = NormKind::rms_norm;
    model.norm_eps = config.optional_number("rms_norm_eps", 1e-6);
    model.position = PositionKind::rope;
    model.rope = read_rope(config);
    const std::string act = config.optional_string("hidden_act", "silu");
    VALIDATE(act == "silu" || act == "swish", ConfigError, "{} '{}' is not known for {} (known: silu)",
             config.name("hidden_act"), act, model.family);
    model.activation = Activation::swiglu;
    model.tied = config.optional_bool("tie_word_embeddings", false);
    if (model.family == "llama" || model.family == "qwen3")
    {
        model.qkv_bias = model.o_bias = config.optional_bool("attention_bias", false);
    }
    if (model.family == "llama") { model.mlp_bias = config.optional_bool("mlp_bias", false); }
    if (model.family == "qwen2") { model.qkv_bias = true; }
    model.qk_norm = model.family == "qwen3";
}

void collect_notes(const JsonFields& config, ModelSpec& model)
{
    // Dropout belongs to a run, not to a model: a file that was saved after pre-training with 0.1 should not bring it back.
    const std::pair<const char*, const char*> rates[] = {{"attention_dropout", "fused attention has no dropout"},
                                                         {"attn_pdrop", "fused attention has no dropout"},
                                                         {"embd_pdrop", "[train] embedding-dropout decides"},
                                                         {"resid_pdrop", "[train] hidden-dropout decides"},
                                                         {"hidden_dropout", "[train] hidden-dropout decides"}};
    for (const auto& [key, instead] : rates)
    {
        const double rate = config.optional_number(key, 0);
        if (rate > 0) { model.notes.push_back(fmt::format("{} {} is not applied ({})", key, rate, instead)); }
    }
    for (const auto& item : config.object().items())
    {
        const std::string& key = item.key();
        if (item.value().is_null() || contains(keys_read, key) || contains(keys_without_effect, key) ||
            contains(moe_keys, key))
        {
            continue;
        }
        model.notes.push_back(fmt::format("'{}' is not known and has no effect", key));
    }
}

std::string name_from_path(const std::string& origin)
{
    // HF directories hold a config.json each: there the directory is the name.
    const std::filesystem::path path(origin);
    const std::string stem = path.stem().string();
    const std::string parent = path.parent_path().filename().string();
    return stem == "config" && !parent.empty() ? parent : stem;
}

nlohmann::json parse_json(const std::string& json_text, const std::string& origin)
{
    try
    {
        return nlohmann::json::parse(json_text);
    }
    catch (const nlohmann::json::exception& error)
    {
        const std::string what = error.what();  // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
        const std::size_t bracket = what.find("] ");
        throw ConfigError(fmt::format("{} is not valid JSON ({})", origin,
                                      bracket == std::string::npos ? what : what.substr(bracket + 2)));
    }
}

}  // namespace

ModelSpec parse_model_spec(const std::string& json_text, const std::string& origin)
{
    const nlohmann::json json = parse_json(json_text, origin);
    VALIDATE(json.is_object(), ConfigError, "{} does not hold a JSON object (a model is one object in braces)", origin);
    const JsonFields config(json, origin);

    ModelSpec model;
    model.name = name_from_path(origin);
    VALIDATE(config.has("model_type"), ConfigError, "{} is missing", config.name("model_type"));
    model.family = config.optional_string("model_type", "");
    VALIDATE(contains(families, model.family), ConfigError, "{}: model_type '{}' is not known (known: {})", origin,
             model.family, fmt::join(families, ", "));
    model.vocab = config.required_int("vocab_size", 1, max_vocab);
    if (model.family == "gpt2") { read_gpt2(config, model); }
    else { read_llama_like(config, model); }
    refuse_unknown_features(config, model);
    model.init_std = config.optional_number("initializer_range", 0.02);
    VALIDATE(model.init_std >= 0, ConfigError, "{} must not be negative (it is {})", config.name("initializer_range"),
             model.init_std);
    VALIDATE(model.norm_eps > 0, ConfigError, "{} must be above 0 (it is {})",
             config.name(model.family == "gpt2" ? "layer_norm_epsilon" : "rms_norm_eps"), model.norm_eps);
    collect_notes(config, model);
    return model;
}

ModelSpec read_model_spec(const std::string& path)
{
    VALIDATE(!std::filesystem::is_directory(path), ConfigError, "{} is a directory (a config.json is expected)", path);
    errno = 0;
    std::ifstream file(path, std::ios::binary);
    VALIDATE(file.good(), ConfigError, "cannot read {} ({})", path, std::strerror(errno));
    std::ostringstream text;
    text << file.rdbuf();
    return parse_model_spec(text.str(), path);
}

}  // namespace plimsoll
