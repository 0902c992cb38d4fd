#include "io/checkpoint_statistics.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.hpp"
#include "io/checkpoint_box.hpp"
#include "io/checkpoint_format.hpp"

namespace plimsoll
{

namespace
{

template<class Word>
Word load(const void* data, std::int64_t index)
{
    Word word;
    std::memcpy(&word, static_cast<const char*>(data) + index * static_cast<std::int64_t>(sizeof(Word)), sizeof(Word));
    return word;
}

// An IEEE-like value of sign, exponent and mantissa bits. `has_infinity` is false for e4m3, whose top exponent holds numbers
// and one NaN (OCP 8-bit floating point specification, section 5).
double small_float(std::uint32_t bits, int exponent_bits, int mantissa_bits, bool has_infinity)
{
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const int top = (1 << exponent_bits) - 1;
    const auto mantissa = static_cast<int>(bits & ((1U << mantissa_bits) - 1));
    const auto exponent = static_cast<int>((bits >> mantissa_bits) & static_cast<std::uint32_t>(top));
    const double sign = ((bits >> (exponent_bits + mantissa_bits)) & 1U) != 0 ? -1.0 : 1.0;
    if (exponent == top)
    {
        const bool is_nan = has_infinity ? mantissa != 0 : mantissa == (1 << mantissa_bits) - 1;
        if (is_nan) { return std::numeric_limits<double>::quiet_NaN(); }
        if (has_infinity) { return sign * std::numeric_limits<double>::infinity(); }
    }
    if (exponent == 0) { return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits); }
    return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

// Sums of finite values around the first of them, so that the deviation of large, close values keeps its digits.
struct Sums
{
    double origin = 0;
    double sum = 0, squares = 0;
    std::int64_t count = 0;
};

void add(TensorStatistics& statistics, Sums& sums, double value)
{
    if (statistics.first.size() < 8) { statistics.first.push_back(value); }
    ++statistics.elements;
    if (!std::isfinite(value))
    {
        ++statistics.not_finite;
        return;
    }
    if (value == 0) { ++statistics.zeros; }
    if (sums.count == 0) { sums.origin = statistics.min = statistics.max = value; }
    statistics.min = std::min(statistics.min, value);
    statistics.max = std::max(statistics.max, value);
    const double distance = value - sums.origin;
    sums.sum += distance;
    sums.squares += distance * distance;
    ++sums.count;
}

}  // namespace

double element_value(const void* data, Dtype dtype, std::int64_t index)
{
    switch (dtype)
    {
        case Dtype::f32: return load<float>(data, index);
        case Dtype::f64: return load<double>(data, index);
        case Dtype::bf16: return small_float(load<std::uint16_t>(data, index), 8, 7, true);
        case Dtype::f16: return small_float(load<std::uint16_t>(data, index), 5, 10, true);
        case Dtype::f8_e4m3: return small_float(load<std::uint8_t>(data, index), 4, 3, false);
        case Dtype::f8_e5m2: return small_float(load<std::uint8_t>(data, index), 5, 2, true);
        case Dtype::i32: return load<std::int32_t>(data, index);
        case Dtype::i64: return static_cast<double>(load<std::int64_t>(data, index));
        case Dtype::u8: return load<std::uint8_t>(data, index);
        case Dtype::u16: return load<std::uint16_t>(data, index);
        case Dtype::u32: return load<std::uint32_t>(data, index);
        case Dtype::u64: return static_cast<double>(load<std::uint64_t>(data, index));
    }
    throw InternalError("unknown dtype");
}

TensorStatistics tensor_statistics(const CheckpointReader& reader, const CheckpointTensor& tensor)
{
    constexpr std::int64_t piece = std::int64_t{1} << 20;
    TensorStatistics statistics;
    Sums sums;
    std::vector<char> data;
    const std::int64_t total = checkpoint::tensor_elements(tensor.shape);
    for (std::int64_t begin = 0; begin < total; begin += piece)
    {
        const std::vector<Box> boxes = tensor.shape.empty()
                                           ? std::vector<Box>{checkpoint::whole_box(tensor.shape)}
                                           : boxes_of_flat_range(tensor.shape, begin, std::min(total, begin + piece));
        for (const Box& box : boxes)
        {
            const std::int64_t elements = checkpoint::tensor_elements(box.shape);
            data.resize(static_cast<std::size_t>(elements * dtype_bytes(tensor.dtype)));
            reader.read(tensor.state, tensor.name, box, data.data());
            for (std::int64_t k = 0; k < elements; ++k) { add(statistics, sums, element_value(data.data(), tensor.dtype, k)); }
        }
    }
    if (sums.count > 0)
    {
        const auto count = static_cast<double>(sums.count);
        const double shift = sums.sum / count;
        const double variance = std::max(0.0, sums.squares / count - shift * shift);
        statistics.mean = sums.origin + shift;
        statistics.deviation = std::sqrt(variance);
        statistics.rms = std::sqrt(variance + statistics.mean * statistics.mean);
    }
    return statistics;
}

}  // namespace plimsoll
