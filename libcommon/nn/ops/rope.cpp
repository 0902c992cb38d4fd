#include "nn/ops/rope.hpp"

#include <ATen/ops/empty.h>

#include <cmath>

#include "nn/ops/dispatch.hpp"

namespace plimsoll::nn
{

namespace
{

/// Llama 3.1: long wavelengths are stretched by `factor`, short ones kept, those between blended. In fp32, in the
/// order in which HF evaluates it, so that the angles agree.
float scaled_frequency(const RopeSpec& spec, float frequency)
{
    const float context = static_cast<float>(spec.original_max_positions);
    const float factor = static_cast<float>(spec.factor);
    const float low = static_cast<float>(spec.low_freq_factor);
    const float width = static_cast<float>(spec.high_freq_factor - spec.low_freq_factor);
    const float longest = static_cast<float>(double(spec.original_max_positions) / spec.low_freq_factor);
    const float shortest = static_cast<float>(double(spec.original_max_positions) / spec.high_freq_factor);
    const float wavelength = static_cast<float>(2.0 * M_PI) / frequency;
    if (wavelength > longest) { return frequency / factor; }
    if (wavelength < shortest) { return frequency; }
    const float smooth = (context / wavelength - low) / width;
    return (1.0f - smooth) * frequency / factor + smooth * frequency;
}

}  // namespace

std::vector<float> rope_inverse_frequencies(const RopeSpec& spec, std::int64_t head_dim)
{
    EXPECT(head_dim > 0 && head_dim % 2 == 0);
    std::vector<float> frequencies(static_cast<std::size_t>(head_dim / 2));
    for (std::size_t i = 0; i < frequencies.size(); ++i)
    {
        const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim);
        const float power = static_cast<float>(std::pow(double(static_cast<float>(spec.theta)), double(exponent)));
        const float frequency = 1.0f / power;
        frequencies[i] = spec.llama3_scaling ? scaled_frequency(spec, frequency) : frequency;
    }
    return frequencies;
}

RopeTable make_rope_table(const RopeSpec& spec, std::int64_t head_dim, std::int64_t seq_len, at::ScalarType dtype)
{
    const std::vector<float> frequencies = rope_inverse_frequencies(spec, head_dim);
    const std::int64_t half = head_dim / 2;
    RopeTable table;
    table.cos_SC = at::empty({seq_len, half}, at::TensorOptions().dtype(dtype));
    table.sin_SC = at::empty({seq_len, half}, at::TensorOptions().dtype(dtype));
    dispatch_wide(dtype,
                  [&](auto zero)
                  {
                      using T = decltype(zero);
                      T* cosine = mutable_elements<T>(table.cos_SC);
                      T* sine = mutable_elements<T>(table.sin_SC);
                      for (std::int64_t s = 0; s < seq_len; ++s)
                      {
                          for (std::int64_t c = 0; c < half; ++c)
                          {
                              // Rounded once from f64: no library's fp32 cosine decides the bits.
                              const float angle = static_cast<float>(s) * frequencies[static_cast<std::size_t>(c)];
                              cosine[s * half + c] = static_cast<T>(static_cast<float>(std::cos(double(angle))));
                              sine[s * half + c] = static_cast<T>(static_cast<float>(std::sin(double(angle))));
                          }
                      }
                  });
    return table;
}

}  // namespace plimsoll::nn
