#pragma once
/// Where a canonical tensor (layout/model_spec.hpp) lies in a HF checkpoint of its family, and how to read it from there.
///
///     gpt2: Conv1D weights are [in, out] and q, k, v one c_attn: layers.3.attn.k_proj.weight [D, D] is
///           h.3.attn.c_attn.weight [D, 3D], columns [D, 2D), transposed. Names may carry the prefix "transformer.".
///     llama, mistral, qwen2, qwen3: the same tensors under other names.

#include <cstdint>
#include <string>
#include <vector>

#include "base/dtype.hpp"
#include "io/safetensors.hpp"
#include "layout/model_spec.hpp"

namespace plimsoll
{

/// Part of a HF tensor that is a canonical tensor: slice [begin, begin + extent) of `dim`, then transposed.
struct HfTensorRef
{
    std::string name;
    int dim = -1;             ///< -1: the whole tensor
    std::int64_t begin = 0;
    std::int64_t extent = 0;
    bool transposed = false;
};

/// @throws InternalError for a name that is not canonical, FormatError for a family without rules
HfTensorRef hf_tensor_ref(const ModelSpec& model, const std::string& canonical_name);

struct HostTensor
{
    Dtype dtype = Dtype::f32;
    std::vector<std::int64_t> shape;
    std::vector<char> bytes; ///< C order
};

/// Reads a canonical tensor in the file's type and the canonical shape. @throws FormatError when it is missing or has another
/// shape than the model says
HostTensor read_hf_tensor(const SafetensorsModel& files, const ModelSpec& model, const std::string& canonical_name);

}  // namespace plimsoll
