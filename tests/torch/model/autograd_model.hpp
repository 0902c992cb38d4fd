#pragma once
// An independent model for comparison: composite ATen operations under autograd, in one dtype throughout. It shares no code
// with nn: own norm, own attention with an explicit mask and softmax, own RoPE by rotate_half.

#include <ATen/ATen.h>

#include <functional>
#include <map>
#include <string>

#include "layout/model_spec.hpp"

namespace plimsoll::test
{

class AutogradModel
{
  public:
    /// `weights`: canonical name -> tensor; copies become leaves that require gradients.
    AutogradModel(const ModelSpec& spec, const std::map<std::string, at::Tensor>& weights);

    /// What an element of a site's [B, S, D] is multiplied with; sites 1 embedding (layer 0), 2 attention, 3 MLP. Default: none.
    using Dropout = std::function<at::Tensor(std::uint64_t site, std::int64_t layer)>;
    void set_dropout(Dropout dropout) { dropout_ = std::move(dropout); }

    /// Sum of masked cross entropies of ids [B, S] against labels [B, S]; mask [B, S] of 0 and 1.
    at::Tensor loss_sum(const at::Tensor& ids_BS, const at::Tensor& labels_BS, const at::Tensor& mask_BS) const;
    const std::map<std::string, at::Tensor>& leaves() const { return leaves_; }

  private:
    const at::Tensor& leaf(const std::string& name) const { return leaves_.at(name); }
    at::Tensor optional(const std::string& name) const;
    at::Tensor norm(const at::Tensor& x, const std::string& prefix) const;
    at::Tensor rotate(const at::Tensor& x_BHSE) const;
    at::Tensor attention(const at::Tensor& x_BSD, const std::string& prefix) const;
    at::Tensor mlp(const at::Tensor& x_BSD, const std::string& prefix) const;

    at::Tensor drop(const at::Tensor& x_BSD, std::uint64_t site, std::int64_t layer) const
    {
        return dropout_ ? x_BSD * dropout_(site, layer) : x_BSD;
    }

    ModelSpec spec_;
    Dropout dropout_;
    std::map<std::string, at::Tensor> leaves_;
};

}  // namespace plimsoll::test
