#pragma once
/// Chooses the element type of a kernel from a tensor's; for .cpp files of nn.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "base/bf16.hpp"
#include "base/error.hpp"

namespace plimsoll::nn
{

/// Calls body(T()) with T float, double or Bf16. @throws InternalError for another type
template<class Body>
void dispatch_real(at::ScalarType type, const Body& body)
{
    EXPECT(type == at::kFloat || type == at::kDouble || type == at::kBFloat16);
    if (type == at::kFloat) { body(float()); }
    else if (type == at::kDouble) { body(double()); }
    else { body(Bf16()); }
}

/// The same of what is summed up: body(T()) with T float or double.
template<class Body>
void dispatch_wide(at::ScalarType type, const Body& body)
{
    EXPECT(type == at::kFloat || type == at::kDouble);
    if (type == at::kFloat) { body(float()); }
    else { body(double()); }
}

/// Of what is summed up beside tensors of `type`: plimsoll::sum_dtype().
inline at::ScalarType sum_type(at::ScalarType type) { return type == at::kBFloat16 ? at::kFloat : type; }

/// ATen's name of a type of ours.
template<class T>
struct TorchType
{
    using type = T;
};
template<>
struct TorchType<Bf16>
{
    using type = at::BFloat16;
};
static_assert(sizeof(at::BFloat16) == sizeof(Bf16));

/// The first element of a tensor with any strides.
template<class T>
const T* first_element(const at::Tensor& tensor)
{
    return reinterpret_cast<const T*>(tensor.const_data_ptr<typename TorchType<T>::type>());
}

template<class T>
T* mutable_first_element(const at::Tensor& tensor)
{
    return reinterpret_cast<T*>(tensor.mutable_data_ptr<typename TorchType<T>::type>());
}

/// Elements of a contiguous tensor. @throws InternalError where it is strided
template<class T>
const T* elements(const at::Tensor& tensor)
{
    EXPECT(tensor.is_contiguous());
    return first_element<T>(tensor);
}

template<class T>
T* mutable_elements(const at::Tensor& tensor)
{
    EXPECT(tensor.is_contiguous());
    return mutable_first_element<T>(tensor);
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
