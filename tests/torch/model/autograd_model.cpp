#include "torch/model/autograd_model.hpp"

#include <cmath>

namespace plimsoll::test
{

AutogradModel::AutogradModel(const ModelSpec& spec, const std::map<std::string, at::Tensor>& weights) : spec_(spec)
{
    for (const auto& [name, tensor] : weights) { leaves_[name] = tensor.detach().clone().requires_grad_(true); }
}

at::Tensor AutogradModel::optional(const std::string& name) const
{
    const auto found = leaves_.find(name);
    return found == leaves_.end() ? at::Tensor() : found->second;
}

at::Tensor AutogradModel::norm(const at::Tensor& x, const std::string& prefix) const
{
    at::Tensor centred = x;
    if (spec_.norm == NormKind::layer_norm) { centred = x - x.mean(-1, true); }
    at::Tensor y = centred * (centred.pow(2).mean(-1, true) + spec_.norm_eps).rsqrt() * leaf(prefix + ".weight");
    const at::Tensor bias = optional(prefix + ".bias");
    return bias.defined() ? y + bias : y;
}

at::Tensor AutogradModel::rotate(const at::Tensor& x_BHSE) const
{
    // The fp32 formula of HF's Llama; powers, cosines and sines are rounded once from fp64, so that they are the same bits
    // wherever they are computed.
    const std::int64_t dim = spec_.head_dim, length = x_BHSE.size(2);
    const auto f32 = at::TensorOptions().dtype(at::kFloat);
    const at::Tensor exponent = (at::arange(0, dim, 2, f32) / static_cast<double>(dim)).to(at::kDouble);
    at::Tensor inv_freq = 1.0 / at::pow(spec_.rope.theta, exponent).to(at::kFloat);
    if (spec_.rope.llama3_scaling)
    {
        const double original = static_cast<double>(spec_.rope.original_max_positions);
        const double low = original / spec_.rope.low_freq_factor, high = original / spec_.rope.high_freq_factor;
        const at::Tensor wavelength = 2 * M_PI / inv_freq;
        const at::Tensor scaled = at::where(wavelength > low, inv_freq / spec_.rope.factor, inv_freq);
        const at::Tensor smooth = (original / wavelength - spec_.rope.low_freq_factor) /
                                  (spec_.rope.high_freq_factor - spec_.rope.low_freq_factor);
        const at::Tensor smoothed = (1 - smooth) * scaled / spec_.rope.factor + smooth * scaled;
        inv_freq = at::where((wavelength >= high).logical_and(wavelength <= low), smoothed, scaled);
    }
    const at::Tensor angle = at::outer(at::arange(length, f32), inv_freq);
    const at::Tensor both = at::cat({angle, angle}, -1).to(at::kDouble);
    const at::Tensor cosine = both.cos().to(at::kFloat).to(x_BHSE.scalar_type());
    const at::Tensor sine = both.sin().to(at::kFloat).to(x_BHSE.scalar_type());
    const at::Tensor turned = at::cat({-x_BHSE.narrow(-1, dim / 2, dim / 2), x_BHSE.narrow(-1, 0, dim / 2)}, -1);
    return x_BHSE * cosine + turned * sine;
}

at::Tensor AutogradModel::attention(const at::Tensor& x_BSD, const std::string& prefix) const
{
    const std::int64_t batch = x_BSD.size(0), length = x_BSD.size(1);
    const auto project = [&](const std::string& name, std::int64_t heads)
    {
        at::Tensor y = at::matmul(x_BSD, leaf(prefix + name + ".weight").t());
        const at::Tensor bias = optional(prefix + name + ".bias");
        if (bias.defined()) { y = y + bias; }
        return y.view({batch, length, heads, spec_.head_dim}).transpose(1, 2);
    };
    at::Tensor q = project("q_proj", spec_.heads), k = project("k_proj", spec_.kv_heads);
    at::Tensor v = project("v_proj", spec_.kv_heads);
    if (spec_.qk_norm)
    {
        q = norm(q, prefix + "q_norm");
        k = norm(k, prefix + "k_norm");
    }
    if (spec_.position == PositionKind::rope)
    {
        q = rotate(q);
        k = rotate(k);
    }
    k = k.repeat_interleave(spec_.heads / spec_.kv_heads, 1);
    v = v.repeat_interleave(spec_.heads / spec_.kv_heads, 1);
    at::Tensor scores = at::matmul(q, k.transpose(-2, -1)) / std::sqrt(static_cast<double>(spec_.head_dim));
    const at::Tensor future = at::ones({length, length}, at::TensorOptions().dtype(at::kBool)).triu(1);
    scores = scores.masked_fill(future, -std::numeric_limits<double>::infinity());
    const at::Tensor out = at::matmul(at::softmax(scores, -1), v)
                               .transpose(1, 2)
                               .reshape({batch, length, spec_.heads * spec_.head_dim});
    const at::Tensor y = at::matmul(out, leaf(prefix + "o_proj.weight").t());
    const at::Tensor bias = optional(prefix + "o_proj.bias");
    return bias.defined() ? y + bias : y;
}

at::Tensor AutogradModel::mlp(const at::Tensor& x_BSD, const std::string& prefix) const
{
    const auto linear = [&](const at::Tensor& x, const std::string& name)
    {
        const at::Tensor y = at::matmul(x, leaf(prefix + name + ".weight").t());
        const at::Tensor bias = optional(prefix + name + ".bias");
        return bias.defined() ? y + bias : y;
    };
    at::Tensor inner = linear(x_BSD, "up_proj");
    if (spec_.activation == Activation::swiglu)
    {
        const at::Tensor gate = linear(x_BSD, "gate_proj");
        inner = gate * at::sigmoid(gate) * inner;
    }
    else if (spec_.activation == Activation::gelu_tanh)
    {
        inner = 0.5 * inner * (1 + at::tanh(std::sqrt(2 / M_PI) * (inner + 0.044715 * inner.pow(3))));
    }
    else { inner = 0.5 * inner * (1 + at::erf(inner / std::sqrt(2.0))); }
    return linear(inner, "down_proj");
}

at::Tensor AutogradModel::loss_sum(const at::Tensor& ids_BS, const at::Tensor& labels_BS, const at::Tensor& mask_BS) const
{
    at::Tensor x = leaf("embed_tokens.weight").index({ids_BS});
    if (spec_.position == PositionKind::learned)
    {
        x = x + leaf("embed_positions.weight").narrow(0, 0, ids_BS.size(1));
    }
    x = drop(x, 1, 0);
    for (std::int64_t layer = 0; layer < spec_.layers; ++layer)
    {
        const std::string prefix = "layers." + std::to_string(layer) + ".";
        x = x + drop(attention(norm(x, prefix + "input_norm"), prefix + "attn."), 2, layer);
        x = x + drop(mlp(norm(x, prefix + "mlp_norm"), prefix + "mlp."), 3, layer);
    }
    x = norm(x, "final_norm");
    const at::Tensor head = leaf(spec_.tied ? "embed_tokens.weight" : "head.weight");
    const at::Tensor logits = at::matmul(x, head.t());
    const at::Tensor log_probs = logits - at::logsumexp(logits, -1, true);
    const at::Tensor picked = log_probs.gather(-1, labels_BS.unsqueeze(-1)).squeeze(-1);
    return -(picked * mask_BS.to(picked.scalar_type())).sum();
}

}  // namespace plimsoll::test
