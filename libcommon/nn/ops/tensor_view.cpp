#include "nn/ops/tensor_view.hpp"

#include "base/error.hpp"

namespace plimsoll::nn
{

namespace
{

Dtype dtype_of(at::ScalarType type)
{
    switch (type)
    {
        case at::kFloat: return Dtype::f32;
        case at::kDouble: return Dtype::f64;
        case at::kBFloat16: return Dtype::bf16;
        case at::kLong: return Dtype::i64;
        case at::kByte: return Dtype::u8;
        default: break;
    }
    throw InternalError(fmt::format("a tensor of type {} has no buffer view", at::toString(type)));
}

}  // namespace

BufferView buffer_view(const at::Tensor& tensor)
{
    EXPECT(tensor.is_contiguous());
    EXPECT(tensor.is_cpu());
    BufferView view;
    view.data = tensor.mutable_data_ptr();
    view.dtype = dtype_of(tensor.scalar_type());
    view.count = tensor.numel();
    return view;
}

}  // namespace plimsoll::nn
