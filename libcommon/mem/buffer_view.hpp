#pragma once
/// A typed range of memory that somebody else owns.

#include <cstdint>

#include "base/dtype.hpp"
#include "mem/device.hpp"

namespace plimsoll
{

struct BufferView
{
    void* data = nullptr;
    Dtype dtype = Dtype::f32;
    std::int64_t count = 0; ///< elements
    Device device;

    std::int64_t bytes() const { return count * dtype_bytes(dtype); }
    BufferView slice(std::int64_t first, std::int64_t num) const
    {
        BufferView view = *this;
        view.data = static_cast<char*>(data) + first * dtype_bytes(dtype);
        view.count = num;
        return view;
    }
};

}  // namespace plimsoll
