#include "nn/kernels/activation_kernels.hpp"

#include <cmath>

#include "nn/kernels/vector_math.hpp"

namespace plimsoll::nn::kernels
{

namespace
{

template<class T>
struct GateAndSlope
{
    T gate;   ///< gelu(x) = x * gate
    T slope;  ///< of gelu at x
};

/// 0.5 (1 + tanh(u)) = sigmoid(2u), which has no cancellation where gelu is small.
template<class T>
PLIMSOLL_INLINE GateAndSlope<T> gelu_tanh(T x)
{
    constexpr T two_root_two_over_pi = T(1.5957691216057308);
    constexpr T cubic = T(0.044715);
    const T square = x * x;
    const Sigmoid<T> gate = vector_sigmoid(two_root_two_over_pi * x * (T(1) + cubic * square));
    const T inner_slope = two_root_two_over_pi * (T(1) + T(3) * cubic * square);
    return {gate.value, gate.value + x * gate.value * gate.complement * inner_slope};
}

constexpr double inverse_root_two_pi = 0.3989422804014327;

/// The normal distribution's tail beyond a >= 0 divided by exp(-a^2/2) is smooth in t = 1 / (1 + 0.34 a): own minimax
/// fit, relative error 3e-8 for a <= 14, where the tail leaves fp32's range.
PLIMSOLL_INLINE GateAndSlope<float> gelu_erf(float x)
{
    const float a = x < 0.0f ? -x : x;
    const float t = 1.0f / (1.0f + 0.34f * a);
    float q = -0.026120706059f;
    q = q * t + 0.139500500083f;
    q = q * t - 0.273134590359f;
    q = q * t + 0.202184520485f;
    q = q * t - 0.044719560196f;
    q = q * t + 0.115359565474f;
    q = q * t + 0.115197573071f;
    q = q * t + 0.136112208168f;
    q = q * t + 0.135620504405f;
    const float bell = vector_exp(-0.5f * x * x);
    const float tail = q * t * bell;
    const float gate = x < 0.0f ? tail : 1.0f - tail;
    return {gate, gate + x * bell * float(inverse_root_two_pi)};
}

/// Not vectorised: f64 is for parity, not for speed.
PLIMSOLL_INLINE GateAndSlope<double> gelu_erf(double x)
{
    const double gate = 0.5 * std::erfc(-x * 0.7071067811865476);
    return {gate, gate + x * std::exp(-0.5 * x * x) * inverse_root_two_pi};
}

template<GeluKind kind, class T>
PLIMSOLL_INLINE GateAndSlope<T> gelu(T x)
{
    if constexpr (kind == GeluKind::tanh) { return gelu_tanh(x); }
    else { return gelu_erf(x); }
}

template<GeluKind kind, class T>
PLIMSOLL_INLINE void forward_of(const T* pre, T* out, std::int64_t count)
{
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i)
    {
        const Wide<T> x = pre[i];
        out[i] = T(x * gelu<kind>(x).gate);
    }
}

template<GeluKind kind, class T>
PLIMSOLL_INLINE void backward_of(T* pre, T* gradient, std::int64_t count)
{
#pragma omp simd
    for (std::int64_t i = 0; i < count; ++i)
    {
        const Wide<T> x = pre[i];
        const GateAndSlope<Wide<T>> value = gelu<kind>(x);
        pre[i] = T(x * value.gate);
        gradient[i] = T(gradient[i] * value.slope);
    }
}

template<class T>
PLIMSOLL_INLINE void forward(GeluKind kind, const T* pre, T* out, std::int64_t count)
{
    if (kind == GeluKind::tanh) { forward_of<GeluKind::tanh>(pre, out, count); }
    else { forward_of<GeluKind::erf>(pre, out, count); }
}

template<class T>
PLIMSOLL_INLINE void backward(GeluKind kind, T* pre, T* gradient, std::int64_t count)
{
    if (kind == GeluKind::tanh) { backward_of<GeluKind::tanh>(pre, gradient, count); }
    else { backward_of<GeluKind::erf>(pre, gradient, count); }
}

template<class T>
PLIMSOLL_INLINE void swiglu_out(const T* pre, T* out, std::int64_t ffn)
{
    const T* gate = pre;
    const T* up = pre + ffn;
#pragma omp simd
    for (std::int64_t i = 0; i < ffn; ++i)
    {
        const Wide<T> g = gate[i];
        out[i] = T(g * vector_sigmoid(g).value * up[i]);
    }
}

template<class T>
PLIMSOLL_INLINE void swiglu_gradient(T* pre, T* gradient, std::int64_t ffn)
{
    T* gate = pre;
    T* up = pre + ffn;
#pragma omp simd
    for (std::int64_t i = 0; i < ffn; ++i)
    {
        const Wide<T> g = gate[i];
        const Wide<T> u = up[i];
        const Wide<T> d = gradient[i];
        const Sigmoid<Wide<T>> s = vector_sigmoid(g);
        const Wide<T> silu = g * s.value;
        gate[i] = T(d * u * (s.value + silu * s.complement));
        up[i] = T(d * silu);
        gradient[i] = T(silu * u);
    }
}

}  // namespace

PLIMSOLL_VECTORISED void gelu_forward(GeluKind kind, const float* pre, float* out, std::int64_t count)
{
    forward(kind, pre, out, count);
}
PLIMSOLL_VECTORISED void gelu_forward(GeluKind kind, const double* pre, double* out, std::int64_t count)
{
    forward(kind, pre, out, count);
}
PLIMSOLL_VECTORISED void gelu_forward(GeluKind kind, const Bf16* pre, Bf16* out, std::int64_t count)
{
    forward(kind, pre, out, count);
}

PLIMSOLL_VECTORISED void gelu_backward(GeluKind kind, float* pre, float* gradient, std::int64_t count)
{
    backward(kind, pre, gradient, count);
}
PLIMSOLL_VECTORISED void gelu_backward(GeluKind kind, double* pre, double* gradient, std::int64_t count)
{
    backward(kind, pre, gradient, count);
}
PLIMSOLL_VECTORISED void gelu_backward(GeluKind kind, Bf16* pre, Bf16* gradient, std::int64_t count)
{
    backward(kind, pre, gradient, count);
}

PLIMSOLL_VECTORISED void swiglu_forward(const float* pre, float* out, std::int64_t ffn) { swiglu_out(pre, out, ffn); }
PLIMSOLL_VECTORISED void swiglu_forward(const double* pre, double* out, std::int64_t ffn) { swiglu_out(pre, out, ffn); }
PLIMSOLL_VECTORISED void swiglu_forward(const Bf16* pre, Bf16* out, std::int64_t ffn) { swiglu_out(pre, out, ffn); }

PLIMSOLL_VECTORISED void swiglu_backward(float* pre, float* gradient, std::int64_t ffn)
{
    swiglu_gradient(pre, gradient, ffn);
}
PLIMSOLL_VECTORISED void swiglu_backward(double* pre, double* gradient, std::int64_t ffn)
{
    swiglu_gradient(pre, gradient, ffn);
}
PLIMSOLL_VECTORISED void swiglu_backward(Bf16* pre, Bf16* gradient, std::int64_t ffn)
{
    swiglu_gradient(pre, gradient, ffn);
}

}  // namespace plimsoll::nn::kernels
