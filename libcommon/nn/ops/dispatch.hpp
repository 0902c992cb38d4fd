#pragma once
/// Chooses the element type of a kernel from a tensor's; for .cpp files of nn.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "base/error.hpp"

namespace plimsoll::nn
{

/// Calls body(T()) with T float or double. @throws InternalError for another type
template<class Body>
void dispatch_real(at::ScalarType type, const Body& body)
{
    EXPECT(type == at::kFloat || type == at::kDouble);
    if (type == at::kFloat) { body(float()); }
    else { body(double()); }
}

/// Elements of a contiguous tensor. @throws InternalError where it is strided
template<class T>
const T* elements(const at::Tensor& tensor)
{
    EXPECT(tensor.is_contiguous());
    return tensor.const_data_ptr<T>();
}

template<class T>
T* mutable_elements(const at::Tensor& tensor)
{
    EXPECT(tensor.is_contiguous());
    return tensor.mutable_data_ptr<T>();
}

/// As above, nullptr for an undefined tensor.
template<class T>
const T* optional_elements(const at::Tensor& tensor)
{
    return tensor.defined() ? elements<T>(tensor) : nullptr;
}

/// Rows that make a thread's share worth its start.
inline std::int64_t rows_per_task(std::int64_t row_elements)
{
    constexpr std::int64_t elements_per_task = 16384;
    return elements_per_task / (row_elements > 0 ? row_elements : 1) + 1;
}

}  // namespace plimsoll::nn
