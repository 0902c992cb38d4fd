#include "io/hf_names.hpp"

#include <array>
#include <cstring>
#include <utility>

#include "base/error.hpp"

namespace plimsoll
{

namespace
{

struct Name
{
    std::int64_t layer = -1;
    std::string part; ///< behind "layers.I.", or the whole name
};

Name split(const std::string& canonical)
{
    Name name;
    name.part = canonical;
    if (canonical.compare(0, 7, "layers.") == 0)
    {
        const std::size_t dot = canonical.find('.', 7);
        EXPECT(dot != std::string::npos);
        name.layer = std::stoll(canonical.substr(7, dot - 7));
        name.part = canonical.substr(dot + 1);
    }
    return name;
}

[[noreturn]] void fail_unknown(const std::string& canonical, const ModelSpec& model)
{
    throw InternalError(fmt::format("'{}' is not a tensor of a {} model", canonical, model.family));
}

// "x.weight" -> ("x", "weight")
std::pair<std::string, std::string> stem_and_kind(const std::string& part)
{
    const std::size_t dot = part.rfind('.');
    return {part.substr(0, dot), dot == std::string::npos ? "" : part.substr(dot + 1)};
}

/// The HF name by two tables: of whole names outside layers, and of stems inside, behind `layer_prefix` and the layer's number.
template<class Outer, class Inner>
HfTensorRef renamed(const ModelSpec& model, const std::string& canonical, const char* layer_prefix, const Outer& outer,
                    const Inner& inner)
{
    const Name name = split(canonical);
    HfTensorRef ref;
    if (name.layer < 0)
    {
        for (const auto& pair : outer)
        {
            if (name.part == pair.first) { ref.name = pair.second; }
        }
    }
    else
    {
        const auto [stem, kind] = stem_and_kind(name.part);
        for (const auto& pair : inner)
        {
            if (stem == pair.first) { ref.name = fmt::format("{}{}.{}.{}", layer_prefix, name.layer, pair.second, kind); }
        }
    }
    if (ref.name.empty()) { fail_unknown(canonical, model); }
    return ref;
}

HfTensorRef llama_ref(const ModelSpec& model, const std::string& canonical)
{
    static constexpr std::array<std::pair<const char*, const char*>, 4> outer = {
        {{"embed_tokens.weight", "model.embed_tokens.weight"},
         {"final_norm.weight", "model.norm.weight"},
         {"head.weight", "lm_head.weight"},
         {"final_norm.bias", "model.norm.bias"}}};
    static constexpr std::array<std::pair<const char*, const char*>, 11> inner = {
        {{"input_norm", "input_layernorm"},
         {"attn.q_proj", "self_attn.q_proj"},
         {"attn.k_proj", "self_attn.k_proj"},
         {"attn.v_proj", "self_attn.v_proj"},
         {"attn.o_proj", "self_attn.o_proj"},
         {"attn.q_norm", "self_attn.q_norm"},
         {"attn.k_norm", "self_attn.k_norm"},
         {"mlp_norm", "post_attention_layernorm"},
         {"mlp.gate_proj", "mlp.gate_proj"},
         {"mlp.up_proj", "mlp.up_proj"},
         {"mlp.down_proj", "mlp.down_proj"}}};
    return renamed(model, canonical, "model.layers.", outer, inner);
}

HfTensorRef gpt2_ref(const ModelSpec& model, const std::string& canonical)
{
    static constexpr std::array<std::pair<const char*, const char*>, 5> outer = {{{"embed_tokens.weight", "wte.weight"},
                                                                                  {"embed_positions.weight", "wpe.weight"},
                                                                                  {"final_norm.weight", "ln_f.weight"},
                                                                                  {"final_norm.bias", "ln_f.bias"},
                                                                                  {"head.weight", "lm_head.weight"}}};
    static constexpr std::array<std::pair<const char*, const char*>, 8> inner = {{{"input_norm", "ln_1"},
                                                                                  {"attn.q_proj", "attn.c_attn"},
                                                                                  {"attn.k_proj", "attn.c_attn"},
                                                                                  {"attn.v_proj", "attn.c_attn"},
                                                                                  {"attn.o_proj", "attn.c_proj"},
                                                                                  {"mlp_norm", "ln_2"},
                                                                                  {"mlp.up_proj", "mlp.c_fc"},
                                                                                  {"mlp.down_proj", "mlp.c_proj"}}};
    HfTensorRef ref = renamed(model, canonical, "h.", outer, inner);
    const Name name = split(canonical);
    if (name.layer >= 0)
    {
        const auto [stem, kind] = stem_and_kind(name.part);
        const bool is_projection = stem.find("_proj") != std::string::npos;
        ref.transposed = is_projection && kind == "weight";
        for (int part = 0; part < 3; ++part)
        {
            if (stem != fmt::format("attn.{}_proj", "qkv"[part])) { continue; }
            ref.dim = kind == "weight" ? 1 : 0;
            ref.begin = part * model.hidden;
            ref.extent = model.hidden;
        }
    }
    return ref;
}

// Slice of `dim` of a C-order array with elements of `element` bytes.
std::vector<char> slice(const std::vector<char>& data, std::vector<std::int64_t>& shape, const HfTensorRef& ref,
                        std::int64_t element)
{
    const auto dim = static_cast<std::size_t>(ref.dim);
    std::int64_t outer = 1;
    std::int64_t inner = element;
    for (std::size_t d = 0; d < dim; ++d) { outer *= shape[d]; }
    for (std::size_t d = dim + 1; d < shape.size(); ++d) { inner *= shape[d]; }
    std::vector<char> part(static_cast<std::size_t>(outer * ref.extent * inner));
    for (std::int64_t row = 0; row < outer; ++row)
    {
        std::memcpy(part.data() + row * ref.extent * inner, data.data() + (row * shape[dim] + ref.begin) * inner,
                    static_cast<std::size_t>(ref.extent * inner));
    }
    shape[dim] = ref.extent;
    return part;
}

std::vector<char> transpose(const std::vector<char>& data, std::vector<std::int64_t>& shape, std::int64_t element)
{
    const std::int64_t rows = shape[0];
    const std::int64_t columns = shape[1];
    std::vector<char> result(data.size());
    for (std::int64_t row = 0; row < rows; ++row)
    {
        for (std::int64_t column = 0; column < columns; ++column)
        {
            std::memcpy(result.data() + (column * rows + row) * element, data.data() + (row * columns + column) * element,
                        static_cast<std::size_t>(element));
        }
    }
    std::swap(shape[0], shape[1]);
    return result;
}

std::vector<std::int64_t> canonical_shape(const ModelSpec& model, const std::string& canonical)
{
    for (const TensorSpec& tensor : canonical_tensors(model))
    {
        if (tensor.name == canonical) { return tensor.shape; }
    }
    fail_unknown(canonical, model);
}

}  // namespace

HfTensorRef hf_tensor_ref(const ModelSpec& model, const std::string& canonical_name)
{
    if (model.family == "gpt2") { return gpt2_ref(model, canonical_name); }
    for (const char* family : {"llama", "mistral", "qwen2", "qwen3"})
    {
        if (model.family == family) { return llama_ref(model, canonical_name); }
    }
    throw FormatError(fmt::format("models of family '{}' cannot be read from safetensors in this version", model.family));
}

HostTensor read_hf_tensor(const SafetensorsModel& files, const ModelSpec& model, const std::string& canonical_name)
{
    HfTensorRef ref = hf_tensor_ref(model, canonical_name);
    if (!files.has(ref.name) && files.has("transformer." + ref.name)) { ref.name = "transformer." + ref.name; }
    const SafetensorsTensor& stored = files.at(ref.name);
    std::vector<std::int64_t> wanted = canonical_shape(model, canonical_name);
    // What the HF tensor must look like for the slice and the transposition to give the canonical shape.
    if (ref.transposed) { std::swap(wanted[0], wanted[1]); }
    if (ref.dim >= 0) { wanted[static_cast<std::size_t>(ref.dim)] = 3 * ref.extent; }
    VALIDATE(stored.shape == wanted, FormatError, "tensor '{}' has shape [{}], the model needs [{}]", ref.name,
             fmt::join(stored.shape, ", "), fmt::join(wanted, ", "));
    HostTensor tensor;
    tensor.dtype = with_context(fmt::format("tensor '{}'", ref.name), [&] { return safetensors_dtype(stored.dtype); });
    tensor.shape = stored.shape;
    tensor.bytes.resize(static_cast<std::size_t>(stored.bytes));
    files.read(ref.name, tensor.bytes.data());
    const std::int64_t element = dtype_bytes(tensor.dtype);
    if (ref.dim >= 0) { tensor.bytes = slice(tensor.bytes, tensor.shape, ref, element); }
    if (ref.transposed) { tensor.bytes = transpose(tensor.bytes, tensor.shape, element); }
    return tensor;
}

}  // namespace plimsoll
