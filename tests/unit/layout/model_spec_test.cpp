// Parameter counts: model cards and `sum(p.numel())` of transformers 5.24 on the meta device for the files in jobs/models.
// FLOP figures: llm.c (6 N + 6 L C T, N with embeddings) and torchtitan (12 L h s, embeddings not counted).

#include "layout/model_spec.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "base/error.hpp"

namespace plimsoll
{
namespace
{

std::string known_model(const std::string& name)
{
    return std::string(PLIMSOLL_SOURCE_DIR) + "/jobs/models/" + name + ".json";
}

nlohmann::json tiny_llama()
{
    return nlohmann::json::parse(R"({"model_type": "llama", "vocab_size": 100, "hidden_size": 32, "intermediate_size": 48,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64})");
}

nlohmann::json tiny_gpt2()
{
    return nlohmann::json::parse(R"({"model_type": "gpt2", "vocab_size": 100, "n_embd": 32, "n_layer": 2, "n_head": 4,
        "n_positions": 64})");
}

ModelSpec parse(const nlohmann::json& config)
{
    return parse_model_spec(config.dump(), "config.json");
}

std::string error_of(const std::string& text)
{
    try
    {
        parse_model_spec(text, "config.json");
    }
    catch (const ConfigError& error)
    {
        return error.what();
    }
    return "no error";
}

std::string error_with(nlohmann::json config, const std::string& key, const nlohmann::json& value)
{
    config[key] = value;
    return error_of(config.dump());
}

std::string error_without(nlohmann::json config, const std::string& key)
{
    config.erase(key);
    return error_of(config.dump());
}

const TensorSpec& tensor(const std::vector<TensorSpec>& tensors, const std::string& name)
{
    const auto it = std::find_if(tensors.begin(), tensors.end(), [&](const TensorSpec& t) { return t.name == name; });
    EXPECT_NE(it, tensors.end()) << name;
    return *it;
}

TEST(ModelSpecInput, BrokenJsonIsNamedWithItsPlace)
{
    EXPECT_EQ(error_of("").find("config.json is not valid JSON (parse error at line 1, column 1"), 0U);
    EXPECT_EQ(error_of("{\"vocab_size\": 3,\n ]").find("config.json is not valid JSON (parse error at line 2"), 0U);
    EXPECT_EQ(error_of("{\"vocab_size\": 1e999}").find("config.json is not valid JSON ("), 0U);
    EXPECT_EQ(error_of("[1]"), "config.json does not hold a JSON object (a model is one object in braces)");
}

TEST(ModelSpecInput, EveryTruncationOfAFileIsAnError)
{
    const std::string text = tiny_llama().dump();
    for (std::size_t length = 0; length < text.size(); ++length)
    {
        EXPECT_NE(error_of(text.substr(0, length)), "no error") << length;
    }
}

TEST(ModelSpecInput, MissingFileAndDirectoryAreNamed)
{
    try
    {
        read_model_spec("/nonexistent/config.json");
        FAIL();
    }
    catch (const ConfigError& error)
    {
        EXPECT_STREQ(error.what(), "cannot read /nonexistent/config.json (No such file or directory)");
    }
    EXPECT_THROW(read_model_spec("/"), ConfigError);
}

TEST(ModelSpecInput, EachNeededFieldIsNamedWhenMissing)
{
    for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
                            "max_position_embeddings", "model_type"})
    {
        EXPECT_EQ(error_without(tiny_llama(), key), fmt::format("config.json: {} is missing", key));
        EXPECT_EQ(error_with(tiny_llama(), key, nullptr), fmt::format("config.json: {} is missing", key));
    }
    for (const char* key : {"vocab_size", "n_embd", "n_layer", "n_head", "n_positions"})
    {
        EXPECT_EQ(error_without(tiny_gpt2(), key), fmt::format("config.json: {} is missing", key));
    }
}

TEST(ModelSpecInput, WrongTypesAndValuesAreNamed)
{
    const nlohmann::json llama = tiny_llama();
    EXPECT_EQ(error_with(llama, "hidden_size", "32"), "config.json: hidden_size must be a whole number (it is \"32\")");
    EXPECT_EQ(error_with(llama, "hidden_size", 32.5), "config.json: hidden_size must be a whole number (it is 32.5)");
    EXPECT_EQ(error_with(llama, "hidden_size", 0), "config.json: hidden_size must be between 1 and 1048576 (it is 0)");
    EXPECT_EQ(error_with(llama, "vocab_size", 18446744073709551615U),
              "config.json: vocab_size must be between 1 and 1073741824 (it is 18446744073709551615)");
    EXPECT_EQ(error_with(llama, "tie_word_embeddings", 1), "config.json: tie_word_embeddings must be true or false (it is 1)");
    EXPECT_EQ(error_with(llama, "rms_norm_eps", "x"), "config.json: rms_norm_eps must be a number (it is \"x\")");
    EXPECT_EQ(error_with(llama, "rms_norm_eps", 0), "config.json: rms_norm_eps must be above 0 (it is 0)");
    EXPECT_EQ(error_with(llama, "hidden_act", 3), "config.json: hidden_act must be a text in quotes (it is 3)");
    EXPECT_EQ(error_with(llama, "model_type", 3), "config.json: model_type must be a text in quotes (it is 3)");
    EXPECT_EQ(error_with(llama, "rope_scaling", 3), "config.json: rope_scaling must be an object in braces (it is 3)");
    EXPECT_EQ(error_with(llama, "initializer_range", -1), "config.json: initializer_range must not be negative (it is -1)");
}

TEST(ModelSpecInput, HeadsThatDoNotDivideAreRefused)
{
    EXPECT_EQ(error_with(tiny_llama(), "num_key_value_heads", 3),
              "config.json: num_key_value_heads 3 cannot be shared by num_attention_heads 4 (each key-value head serves the same "
              "number of heads)");
    EXPECT_EQ(error_with(tiny_llama(), "hidden_size", 34),
              "config.json: hidden_size 34 cannot be divided into num_attention_heads 4 heads (no head_dim is given)");
    EXPECT_EQ(error_with(tiny_llama(), "head_dim", 7), "config.json: head_dim 7 is odd (rotary embedding turns pairs)");
    EXPECT_EQ(error_with(tiny_gpt2(), "n_head", 5), "config.json: n_embd 32 cannot be divided into n_head 5 heads");
}

TEST(ModelSpecInput, UnknownFeaturesAreRefusedByName)
{
    const nlohmann::json llama = tiny_llama();
    EXPECT_EQ(error_with(llama, "model_type", "mamba"),
              "config.json: model_type 'mamba' is not known (known: gpt2, llama, mistral, qwen2, qwen3)");
    EXPECT_EQ(error_with(llama, "hidden_act", "gelu"), "config.json: hidden_act 'gelu' is not known for llama (known: silu)");
    EXPECT_EQ(error_with(tiny_gpt2(), "activation_function", "relu"),
              "config.json: activation_function 'relu' is not known for gpt2 (known: gelu_new, gelu_pytorch_tanh, gelu)");
    EXPECT_EQ(error_with(llama, "rope_scaling", {{"type", "linear"}, {"factor", 2.0}}),
              "config.json: rope_scaling.rope_type 'linear' is not known (known: default, llama3)");
    EXPECT_EQ(error_with(llama, "rope_parameters", {{"rope_type", "yarn"}}),
              "config.json: rope_parameters.rope_type 'yarn' is not known (known: default, llama3)");
    EXPECT_EQ(error_with(llama, "num_local_experts", 8),
              "config.json: num_local_experts asks for mixture of experts (not known in this version)");
    EXPECT_EQ(error_with(llama, "quantization_config", {{"bits", 4}}),
              "config.json: quantization_config asks for quantized weights (not known in this version)");
    EXPECT_EQ(error_with(llama, "final_logit_softcapping", 30.0),
              "config.json: final_logit_softcapping asks for soft-capped logits (not known in this version)");
    EXPECT_EQ(error_with(llama, "residual_multiplier", 0.2),
              "config.json: residual_multiplier asks for 'residual_multiplier' (not known in this version)");
    EXPECT_EQ(error_with(llama, "partial_rotary_factor", 0.5),
              "config.json: partial_rotary_factor asks for rotation of a part of each head (not known in this version)");
    EXPECT_EQ(error_with(llama, "layer_types", {"full_attention", "sliding_attention"}),
              "config.json: layer_types asks for 'sliding_attention' (not known in this version)");
    EXPECT_EQ(error_with(tiny_gpt2(), "scale_attn_by_inverse_layer_idx", true),
              "config.json: scale_attn_by_inverse_layer_idx asks for attention scaled by layer number (not known in this "
              "version)");
    EXPECT_EQ(error_with(tiny_gpt2(), "add_cross_attention", true),
              "config.json: add_cross_attention asks for an encoder (not known in this version)");
}

TEST(ModelSpecInput, SlidingWindowsAreRefusedWhereTheFamilyUsesThem)
{
    nlohmann::json mistral = tiny_llama();
    mistral["model_type"] = "mistral";
    EXPECT_EQ(error_with(mistral, "sliding_window", 16),
              "config.json: sliding_window asks for sliding window attention of 16 tokens (not known in this version)");
    EXPECT_EQ(error_with(mistral, "sliding_window", nullptr), "no error");
    EXPECT_EQ(error_with(mistral, "sliding_window", 64), "no error");  // as long as the longest sequence: no window
    nlohmann::json qwen = tiny_llama();
    qwen["model_type"] = "qwen2";
    qwen["sliding_window"] = 16;  // published Qwen2 files carry it together with use_sliding_window false
    EXPECT_EQ(error_with(qwen, "use_sliding_window", false), "no error");
    EXPECT_EQ(error_with(qwen, "use_sliding_window", true),
              "config.json: use_sliding_window asks for sliding window attention (not known in this version)");
}

TEST(ModelSpecInput, Llama3ScalingNeedsItsFields)
{
    const nlohmann::json scaling = {{"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 1.0},
                                    {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 32}};
    for (const char* key : {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"})
    {
        nlohmann::json part = scaling;
        part.erase(key);
        EXPECT_EQ(error_with(tiny_llama(), "rope_scaling", part), fmt::format("config.json: rope_scaling.{} is missing", key));
    }
    nlohmann::json turned = scaling;
    turned["high_freq_factor"] = 0.5;
    EXPECT_EQ(error_with(tiny_llama(), "rope_scaling", turned),
              "config.json: rope_scaling.high_freq_factor 0.5 must lie above low_freq_factor 1, and both above 0");
}

TEST(ModelSpec, OldAndNewRopeFormsAreTheSame)
{
    nlohmann::json old_form = tiny_llama();
    old_form["rope_theta"] = 500000.0;
    old_form["rope_scaling"] = {{"rope_type", "llama3"}, {"factor", 8.0}, {"low_freq_factor", 1.0},
                                {"high_freq_factor", 4.0}, {"original_max_position_embeddings", 32}};
    nlohmann::json new_form = tiny_llama();
    new_form["rope_parameters"] = old_form["rope_scaling"];
    new_form["rope_parameters"]["rope_theta"] = 500000.0;
    const ModelSpec a = parse(old_form);
    EXPECT_TRUE(a.rope.llama3_scaling);
    EXPECT_EQ(a.rope.theta, 500000.0);
    EXPECT_EQ(a.rope.factor, 8.0);
    EXPECT_EQ(a.rope.original_max_positions, 32);
    EXPECT_EQ(model_fingerprint(a), model_fingerprint(parse(new_form)));
    EXPECT_TRUE(parse(new_form).notes.empty());
}

TEST(ModelSpec, DefaultsAreThoseOfTheFamily)
{
    const ModelSpec gpt2 = parse(tiny_gpt2());
    EXPECT_EQ(gpt2.ffn, 128);
    EXPECT_TRUE(gpt2.tied && gpt2.qkv_bias && gpt2.o_bias && gpt2.mlp_bias && gpt2.norm_bias && gpt2.scaled_residual_init);
    EXPECT_EQ(gpt2.norm, NormKind::layer_norm);
    EXPECT_EQ(gpt2.position, PositionKind::learned);
    EXPECT_EQ(gpt2.activation, Activation::gelu_tanh);
    EXPECT_EQ(gpt2.norm_eps, 1e-5);

    const ModelSpec llama = parse(tiny_llama());
    EXPECT_FALSE(llama.tied || llama.qkv_bias || llama.o_bias || llama.mlp_bias || llama.norm_bias || llama.qk_norm ||
                 llama.scaled_residual_init);
    EXPECT_EQ(llama.norm, NormKind::rms_norm);
    EXPECT_EQ(llama.norm_eps, 1e-6);
    EXPECT_EQ(llama.rope.theta, 10000.0);
    EXPECT_EQ(llama.head_dim, 8);

    nlohmann::json config = tiny_llama();
    config["model_type"] = "qwen2";
    const ModelSpec qwen2 = parse(config);
    EXPECT_TRUE(qwen2.qkv_bias);
    EXPECT_FALSE(qwen2.o_bias || qwen2.qk_norm);
    config["model_type"] = "qwen3";
    const ModelSpec qwen3 = parse(config);
    EXPECT_TRUE(qwen3.qk_norm);
    EXPECT_FALSE(qwen3.qkv_bias);
    EXPECT_EQ(qwen3.head_dim, 128);
    config.erase("num_key_value_heads");
    EXPECT_EQ(parse(config).kv_heads, 4);
}

TEST(ModelSpec, BiasesFollowTheConfig)
{
    nlohmann::json config = tiny_llama();
    config["attention_bias"] = true;
    config["mlp_bias"] = true;
    std::set<std::string> names;
    for (const TensorSpec& t : canonical_tensors(parse(config))) { names.insert(t.name); }
    for (const char* name : {"layers.1.attn.q_proj.bias", "layers.1.attn.o_proj.bias", "layers.1.mlp.gate_proj.bias",
                             "layers.1.mlp.up_proj.bias", "layers.1.mlp.down_proj.bias"})
    {
        EXPECT_EQ(names.count(name), 1U) << name;
    }
    EXPECT_EQ(names.count("layers.1.input_norm.bias"), 0U);
}

TEST(ModelSpec, WhatIsNotAppliedIsNoted)
{
    nlohmann::json config = tiny_gpt2();
    config["attn_pdrop"] = 0.1;
    config["resid_pdrop"] = 0.0;
    config["embd_pdrop"] = 0.2;
    config["bos_token_id"] = 50256;
    config["frobnicate"] = 7;
    EXPECT_EQ(parse(config).notes, (std::vector<std::string>{"attn_pdrop 0.1 is not applied (fused attention has no dropout)",
                                                             "embd_pdrop 0.2 is not applied ([train] embedding-dropout decides)",
                                                             "'frobnicate' is not known and has no effect"}));
}

TEST(ModelSpec, NameIsTheFileOrItsDirectory)
{
    EXPECT_EQ(parse_model_spec(tiny_llama().dump(), "models/llama-5m.json").name, "llama-5m");
    EXPECT_EQ(parse_model_spec(tiny_llama().dump(), "/models/Llama-3.1-8B/config.json").name, "Llama-3.1-8B");
    EXPECT_EQ(parse_model_spec(tiny_llama().dump(), "config.json").name, "config");
}

TEST(ModelSpec, CountsOfKnownModelsAreThePublishedOnes)
{
    struct Row { const char* name; std::int64_t parameters; };
    const Row rows[] = {
        {"gpt2", 124439808},        {"gpt2-medium", 354823168},      {"gpt2-large", 774030080},
        {"gpt2-xl", 1557611200},    {"llama-3.2-1b", 1235814400},    {"llama-3.1-8b", 8030261248},
        {"llama-3.1-70b", 70553706496}, {"llama-3.1-405b", 405853388800}, {"qwen2.5-0.5b", 494032768},
        {"qwen3-0.6b", 596049920},  {"tinyllama-1.1b", 1100048384},  {"smollm-135m", 134515008},
        {"llama-5m", 5000960},      {"llama-6m", 5917952},
    };
    for (const Row& row : rows)
    {
        const ModelSpec model = read_model_spec(known_model(row.name));
        EXPECT_EQ(num_parameters(model), row.parameters) << row.name;
        EXPECT_EQ(model.name, row.name);
        EXPECT_TRUE(model.notes.empty()) << row.name << ": " << model.notes.front();
    }
    EXPECT_EQ(canonical_tensors(read_model_spec(known_model("llama-3.1-8b"))).size(), 291U);
    EXPECT_EQ(canonical_tensors(read_model_spec(known_model("llama-3.1-70b"))).size(), 723U);
}

TEST(ModelSpec, FlopsAgreeWithPublishedFormulas)
{
    const ModelSpec llama = read_model_spec(known_model("llama-3.1-8b"));
    EXPECT_NEAR(train_flops_per_token(llama, 8192) / 1e9, 57.91, 0.005);
    EXPECT_NEAR(train_flops_per_token(llama, 8192, AttentionFlops::causal) / 1e9, 51.47, 0.005);

    // llm.c counts every parameter of the padded vocabulary and half the attention: 0.804 and 9.82 GFLOP.
    struct Row { const char* name; double gflop; };
    for (const Row& row : {Row{"gpt2", 0.804}, Row{"gpt2-xl", 9.82}})
    {
        ModelSpec gpt2 = read_model_spec(known_model(row.name));
        gpt2.vocab = 50304;
        const double attention = train_flops_per_token(gpt2, 1024, AttentionFlops::causal) -
                                 6.0 * static_cast<double>(num_matmul_parameters(gpt2));
        EXPECT_NEAR((6.0 * static_cast<double>(num_parameters(gpt2)) + attention) / 1e9, row.gflop, 0.006) << row.name;
    }
    // Ours for gpt2: 6 (12 * 12 * 768^2 + 50257 * 768) + 12 * 12 * 768 * 1024
    EXPECT_DOUBLE_EQ(train_flops_per_token(read_model_spec(known_model("gpt2")), 1024),
                     6.0 * (12.0 * 12 * 768 * 768 + 50257.0 * 768) + 12.0 * 12 * 768 * 1024);
}

TEST(ModelSpec, MatmulParametersAreTheMatricesButEmbeddings)
{
    for (const char* name : {"gpt2", "qwen2.5-0.5b", "qwen3-0.6b", "llama-3.1-8b"})
    {
        const ModelSpec model = read_model_spec(known_model(name));
        std::int64_t total = model.tied ? model.vocab * model.hidden : 0;
        for (const TensorSpec& t : canonical_tensors(model))
        {
            const bool table = t.unit == UnitKind::embedding || t.unit == UnitKind::tied_embedding;
            if (t.shape.size() == 2 && !table) { total += t.shape[0] * t.shape[1]; }
        }
        EXPECT_EQ(num_matmul_parameters(model), total) << name;
    }
}

TEST(ModelSpec, FingerprintIsFixedForEver)
{
    // Written into checkpoints: a change of these lines makes every saved step of the model unreadable.
    EXPECT_EQ(model_fingerprint(read_model_spec(known_model("gpt2"))), "a275189c0f4bc66b42faf43218bc767ac359dd4ac82101c12d29007a8d06e153");
    EXPECT_EQ(model_fingerprint(read_model_spec(known_model("llama-3.1-8b"))), "9ea194839a3070f47d048a55bc1da69c80b1b464cea15e52418715df895c45e2");
}

TEST(ModelSpec, FingerprintSeesMathsAndNotNames)
{
    const ModelSpec base = parse(tiny_llama());
    ModelSpec other = base;
    other.name = "other";
    other.init_std = 0.5;
    other.max_positions = 128;
    other.notes = {"x"};
    EXPECT_EQ(model_fingerprint(base), model_fingerprint(other));
    for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"})
    {
        nlohmann::json config = tiny_llama();
        config[key] = config[key].get<int>() * 2;
        EXPECT_NE(model_fingerprint(parse(config)), model_fingerprint(base)) << key;
    }
    for (const auto& change : {nlohmann::json{{"rope_theta", 5e5}}, nlohmann::json{{"rms_norm_eps", 1e-5}},
                               nlohmann::json{{"tie_word_embeddings", true}}, nlohmann::json{{"attention_bias", true}}})
    {
        nlohmann::json config = tiny_llama();
        config.update(change);
        EXPECT_NE(model_fingerprint(parse(config)), model_fingerprint(base)) << change;
    }
}

TEST(CanonicalTensors, PlacementFollowsTheKind)
{
    nlohmann::json config = tiny_llama();
    config["model_type"] = "qwen3";
    config["attention_bias"] = true;
    config["head_dim"] = 16;
    const auto tensors = canonical_tensors(parse(config));
    struct Row { const char* name; Placement tp; int dim; std::int64_t granule; std::int64_t kv_heads; bool padded; };
    const Row rows[] = {
        {"embed_tokens.weight", Placement::shard, 0, 1, 0, true},
        {"layers.0.input_norm.weight", Placement::replicate, 0, 1, 0, false},
        {"layers.0.attn.q_proj.weight", Placement::shard, 0, 16, 0, false},
        {"layers.0.attn.k_proj.weight", Placement::shard, 0, 16, 2, false},
        {"layers.0.attn.v_proj.bias", Placement::shard, 0, 16, 2, false},
        {"layers.0.attn.q_norm.weight", Placement::replicate_grad_partial, 0, 1, 0, false},
        {"layers.0.attn.k_norm.weight", Placement::replicate_grad_partial, 0, 1, 0, false},
        {"layers.0.attn.o_proj.weight", Placement::shard, 1, 16, 0, false},
        {"layers.0.attn.o_proj.bias", Placement::replicate, 0, 1, 0, false},
        {"layers.1.mlp.gate_proj.weight", Placement::shard, 0, 1, 0, false},
        {"layers.1.mlp.down_proj.weight", Placement::shard, 1, 1, 0, false},
        {"final_norm.weight", Placement::replicate, 0, 1, 0, false},
        {"head.weight", Placement::shard, 0, 1, 0, true},
    };
    for (const Row& row : rows)
    {
        const ShardSpec& shard = tensor(tensors, row.name).shard;
        EXPECT_EQ(shard.tp, row.tp) << row.name;
        if (row.tp != Placement::shard) { continue; }
        EXPECT_EQ(shard.dim, row.dim) << row.name;
        EXPECT_EQ(shard.granule, row.granule) << row.name;
        EXPECT_EQ(shard.kv_heads, row.kv_heads) << row.name;
        EXPECT_EQ(shard.padded, row.padded) << row.name;
    }
    EXPECT_EQ(tensor(tensors, "layers.0.attn.o_proj.weight").shape, (std::vector<std::int64_t>{32, 64}));
}

TEST(CanonicalTensors, GroupsDecayAndInitialValuesFollowTheKind)
{
    const auto tensors = canonical_tensors(parse(tiny_gpt2()));
    EXPECT_EQ(tensor(tensors, "layers.0.attn.k_proj.weight").fuse_group, "qkv");
    EXPECT_EQ(tensor(tensors, "layers.0.attn.k_proj.bias").fuse_group, "qkv_bias");
    EXPECT_EQ(tensor(tensors, "layers.0.mlp.up_proj.weight").fuse_group, "");
    EXPECT_EQ(tensor(canonical_tensors(parse(tiny_llama())), "layers.0.mlp.up_proj.weight").fuse_group, "gate_up");
    EXPECT_EQ(tensor(tensors, "embed_positions.weight").unit, UnitKind::embedding);
    EXPECT_EQ(tensor(tensors, "embed_tokens.weight").unit, UnitKind::tied_embedding);
    EXPECT_EQ(tensor(tensors, "embed_tokens.weight").aliases, std::vector<std::string>{"head.weight"});
    EXPECT_EQ(tensor(tensors, "layers.1.mlp_norm.bias").layer, 1);
    for (const TensorSpec& t : tensors)
    {
        const bool matrix = t.shape.size() == 2;
        EXPECT_EQ(t.decay, matrix ? DecayGroup::decay : DecayGroup::no_decay) << t.name;
        const bool is_bias = t.name.find(".bias") != std::string::npos;
        EXPECT_EQ(t.init, matrix ? InitKind::normal : is_bias ? InitKind::zeros : InitKind::ones) << t.name;
    }
    EXPECT_EQ(tensor(tensors, "embed_tokens.weight").init_std, 0.02);
    EXPECT_EQ(tensor(tensors, "layers.0.mlp.up_proj.weight").init_std, 0.02);
    EXPECT_DOUBLE_EQ(tensor(tensors, "layers.0.mlp.down_proj.weight").init_std, 0.02 / 2);  // sqrt(2 * 2 layers)
    EXPECT_DOUBLE_EQ(tensor(tensors, "layers.0.attn.o_proj.weight").init_std, 0.02 / 2);
    EXPECT_EQ(tensor(canonical_tensors(parse(tiny_llama())), "layers.0.mlp.down_proj.weight").init_std, 0.02);
}

TEST(CanonicalTensors, UntiedModelHasAHeadAndNoAlias)
{
    const auto tensors = canonical_tensors(parse(tiny_llama()));
    EXPECT_EQ(tensors.front().name, "embed_tokens.weight");
    EXPECT_EQ(tensors.front().unit, UnitKind::embedding);
    EXPECT_TRUE(tensors.front().aliases.empty());
    EXPECT_EQ(tensors.back().name, "head.weight");
    EXPECT_EQ(tensors.back().unit, UnitKind::head);
}

}  // namespace
}  // namespace plimsoll
