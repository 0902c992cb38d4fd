#pragma once
/// Values of a stored tensor in figures, read block by block: memory does not grow with the tensor.

#include <cstdint>
#include <string>
#include <vector>

#include "io/checkpoint.hpp"

namespace plimsoll
{

/// Element `index` of an array as a double. Integers beyond 2^53 are rounded.
double element_value(const void* data, Dtype dtype, std::int64_t index);

struct TensorStatistics
{
    std::int64_t elements = 0;
    std::int64_t zeros = 0;
    std::int64_t not_finite = 0; ///< NaN and infinities; outside all figures below
    double min = 0, max = 0;     ///< 0 when no element is finite
    double mean = 0, rms = 0, deviation = 0;
    std::vector<double> first;   ///< the first values in C order, at most 8
};

/// @throws FormatError when there is no such tensor or a block is damaged
TensorStatistics tensor_statistics(const CheckpointReader& reader, const CheckpointTensor& tensor);

}  // namespace plimsoll
