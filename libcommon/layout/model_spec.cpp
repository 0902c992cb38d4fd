#include "layout/model_spec.hpp"

#include <cmath>
#include <utility>

#include "base/digest.hpp"
#include "base/error.hpp"

namespace plimsoll
{
namespace
{

/// Collects the canonical tensors of one model; the methods give a tensor its placement by kind.
class TensorList
{
  public:
    explicit TensorList(const ModelSpec& model) : model_(model) {}

    void enter(UnitKind unit, std::int64_t layer)
    {
        unit_ = unit;
        layer_ = layer;
        prefix_ = layer < 0 ? "" : fmt::format("layers.{}.", layer);
    }

    TensorSpec& weight(const std::string& name, std::vector<std::int64_t> shape, ShardSpec shard, std::string fuse_group = "")
    {
        TensorSpec& tensor = add(name + ".weight", std::move(shape), shard, std::move(fuse_group));
        tensor.init_std = model_.init_std;
        return tensor;
    }

    /// Weight that adds to the residual stream.
    void residual_weight(const std::string& name, std::vector<std::int64_t> shape, ShardSpec shard)
    {
        TensorSpec& tensor = weight(name, std::move(shape), shard);
        if (model_.scaled_residual_init) { tensor.init_std /= std::sqrt(2.0 * static_cast<double>(model_.layers)); }
    }

    void bias(const std::string& name, std::int64_t size, ShardSpec shard, std::string fuse_group = "")
    {
        TensorSpec& tensor = add(name + ".bias", {size}, shard, std::move(fuse_group));
        tensor.decay = DecayGroup::no_decay;
        tensor.init = InitKind::zeros;
    }

    void norm(const std::string& name, std::int64_t size, Placement placement, bool with_bias)
    {
        ShardSpec shard;
        shard.tp = placement;
        TensorSpec& tensor = add(name + ".weight", {size}, shard, "");
        tensor.decay = DecayGroup::no_decay;
        tensor.init = InitKind::ones;
        if (with_bias) { bias(name, size, shard); }
    }

    std::vector<TensorSpec> take() { return std::move(tensors_); }

  private:
    TensorSpec& add(const std::string& name, std::vector<std::int64_t> shape, ShardSpec shard, std::string fuse_group)
    {
        TensorSpec tensor;
        tensor.name = prefix_ + name;
        tensor.shape = std::move(shape);
        tensor.unit = unit_;
        tensor.layer = layer_;
        tensor.fuse_group = std::move(fuse_group);
        tensor.shard = shard;
        tensors_.push_back(std::move(tensor));
        return tensors_.back();
    }

    const ModelSpec& model_;
    UnitKind unit_ = UnitKind::block;
    std::int64_t layer_ = -1;
    std::string prefix_;
    std::vector<TensorSpec> tensors_;
};

ShardSpec cut(int dim, std::int64_t granule, std::int64_t kv_heads = 0)
{
    ShardSpec shard;
    shard.tp = Placement::shard;
    shard.dim = dim;
    shard.granule = granule;
    shard.kv_heads = kv_heads;
    return shard;
}

ShardSpec vocabulary_cut()
{
    ShardSpec shard = cut(0, 1);
    shard.padded = true;
    return shard;
}

void add_attention(TensorList& list, const ModelSpec& model)
{
    const std::int64_t q_rows = model.heads * model.head_dim;
    const std::int64_t kv_rows = model.kv_heads * model.head_dim;
    const ShardSpec q_cut = cut(0, model.head_dim);
    const ShardSpec kv_cut = cut(0, model.head_dim, model.kv_heads);
    list.norm("input_norm", model.hidden, Placement::replicate, model.norm_bias);
    list.weight("attn.q_proj", {q_rows, model.hidden}, q_cut, "qkv");
    list.weight("attn.k_proj", {kv_rows, model.hidden}, kv_cut, "qkv");
    list.weight("attn.v_proj", {kv_rows, model.hidden}, kv_cut, "qkv");
    if (model.qkv_bias)
    {
        list.bias("attn.q_proj", q_rows, q_cut, "qkv_bias");
        list.bias("attn.k_proj", kv_rows, kv_cut, "qkv_bias");
        list.bias("attn.v_proj", kv_rows, kv_cut, "qkv_bias");
    }
    if (model.qk_norm)
    {
        // One scale for all heads: each tp rank sees the gradient of its own heads only.
        list.norm("attn.q_norm", model.head_dim, Placement::replicate_grad_partial, false);
        list.norm("attn.k_norm", model.head_dim, Placement::replicate_grad_partial, false);
    }
    list.residual_weight("attn.o_proj", {model.hidden, q_rows}, cut(1, model.head_dim));
    if (model.o_bias) { list.bias("attn.o_proj", model.hidden, ShardSpec{}); }
}

void add_mlp(TensorList& list, const ModelSpec& model)
{
    const bool gated = model.activation == Activation::swiglu;
    list.norm("mlp_norm", model.hidden, Placement::replicate, model.norm_bias);
    if (gated) { list.weight("mlp.gate_proj", {model.ffn, model.hidden}, cut(0, 1), "gate_up"); }
    list.weight("mlp.up_proj", {model.ffn, model.hidden}, cut(0, 1), gated ? "gate_up" : "");
    if (model.mlp_bias)
    {
        if (gated) { list.bias("mlp.gate_proj", model.ffn, cut(0, 1), "gate_up_bias"); }
        list.bias("mlp.up_proj", model.ffn, cut(0, 1), gated ? "gate_up_bias" : "");
    }
    list.residual_weight("mlp.down_proj", {model.hidden, model.ffn}, cut(1, 1));
    if (model.mlp_bias) { list.bias("mlp.down_proj", model.hidden, ShardSpec{}); }
}

}  // namespace

std::vector<TensorSpec> canonical_tensors(const ModelSpec& model)
{
    TensorList list(model);
    list.enter(model.tied ? UnitKind::tied_embedding : UnitKind::embedding, -1);
    TensorSpec& embedding = list.weight("embed_tokens", {model.vocab, model.hidden}, vocabulary_cut());
    if (model.tied) { embedding.aliases.push_back("head.weight"); }
    if (model.position == PositionKind::learned)
    {
        list.enter(UnitKind::embedding, -1);
        list.weight("embed_positions", {model.max_positions, model.hidden}, ShardSpec{});
    }
    for (std::int64_t layer = 0; layer < model.layers; ++layer)
    {
        list.enter(UnitKind::block, layer);
        add_attention(list, model);
        add_mlp(list, model);
    }
    list.enter(UnitKind::head, -1);
    list.norm("final_norm", model.hidden, Placement::replicate, model.norm_bias);
    if (!model.tied) { list.weight("head", {model.vocab, model.hidden}, vocabulary_cut()); }
    return list.take();
}

std::int64_t num_parameters(const ModelSpec& model)
{
    std::int64_t total = 0;
    for (const TensorSpec& tensor : canonical_tensors(model))
    {
        std::int64_t elements = 1;
        for (const std::int64_t extent : tensor.shape) { elements *= extent; }
        total += elements;
    }
    return total;
}

std::int64_t num_matmul_parameters(const ModelSpec& model)
{
    const std::int64_t q_rows = model.heads * model.head_dim;
    const std::int64_t kv_rows = model.kv_heads * model.head_dim;
    const std::int64_t attention = model.hidden * (2 * q_rows + 2 * kv_rows);
    const std::int64_t mlp = (model.activation == Activation::swiglu ? 3 : 2) * model.hidden * model.ffn;
    return model.layers * (attention + mlp) + model.vocab * model.hidden;
}

double train_flops_per_token(const ModelSpec& model, std::int64_t seq_len, AttentionFlops attention)
{
    const double products = static_cast<double>(model.layers) * static_cast<double>(model.heads * model.head_dim) *
                            static_cast<double>(seq_len);
    return 6.0 * static_cast<double>(num_matmul_parameters(model)) +
           (attention == AttentionFlops::full ? 12.0 : 6.0) * products;
}

std::vector<std::string> model_fingerprint_fields(const ModelSpec& model)
{
    // Persistent: the text of a checkpoint's fingerprint. A new field joins only with a value that old models do not have.
    std::vector<std::string> fields;
    const auto whole = [&fields](const char* key, std::int64_t value) { fields.push_back(fmt::format("{}={}", key, value)); };
    const auto real = [&fields](const char* key, double value) { fields.push_back(fmt::format("{}={:.17g}", key, value)); };
    const auto text = [&fields](const char* key, const char* value) { fields.push_back(fmt::format("{}={}", key, value)); };
    const auto flag = [&text](const char* key, bool value) { text(key, value ? "yes" : "no"); };
    whole("vocab", model.vocab);
    whole("hidden", model.hidden);
    whole("layers", model.layers);
    whole("heads", model.heads);
    whole("kv_heads", model.kv_heads);
    whole("head_dim", model.head_dim);
    whole("ffn", model.ffn);
    text("norm", model.norm == NormKind::layer_norm ? "layer_norm" : "rms_norm");
    real("norm_eps", model.norm_eps);
    text("activation", model.activation == Activation::swiglu      ? "swiglu"
                       : model.activation == Activation::gelu_tanh ? "gelu_tanh"
                                                                   : "gelu_erf");
    flag("qkv_bias", model.qkv_bias);
    flag("o_bias", model.o_bias);
    flag("mlp_bias", model.mlp_bias);
    flag("norm_bias", model.norm_bias);
    flag("qk_norm", model.qk_norm);
    flag("tied", model.tied);
    if (model.position == PositionKind::learned)
    {
        text("position", "learned");
        whole("max_positions", model.max_positions);
        return fields;
    }
    text("position", "rope");
    real("rope_theta", model.rope.theta);
    if (model.rope.llama3_scaling)
    {
        text("rope_scaling", "llama3");
        real("rope_factor", model.rope.factor);
        real("rope_low_freq_factor", model.rope.low_freq_factor);
        real("rope_high_freq_factor", model.rope.high_freq_factor);
        whole("rope_original_max_positions", model.rope.original_max_positions);
    }
    return fields;
}

std::string model_fingerprint(const ModelSpec& model)
{
    std::string text = "plimsoll-model-1\n";
    for (const std::string& field : model_fingerprint_fields(model)) { text += field + "\n"; }
    return sha256_hex(text);
}

}  // namespace plimsoll
