#pragma once
/// The elements of a vector as what a communicator takes.

#include <cstdint>
#include <type_traits>
#include <vector>

#include "base/bf16.hpp"
#include "base/dtype.hpp"
#include "mem/buffer_view.hpp"

namespace plimsoll::testing
{

template<class T>
constexpr Dtype dtype_of()
{
    if constexpr (std::is_same_v<T, float>) { return Dtype::f32; }
    else if constexpr (std::is_same_v<T, double>) { return Dtype::f64; }
    else if constexpr (std::is_same_v<T, std::int32_t>) { return Dtype::i32; }
    else if constexpr (std::is_same_v<T, std::int64_t>) { return Dtype::i64; }
    else if constexpr (std::is_same_v<T, std::uint16_t> || std::is_same_v<T, Bf16>) { return Dtype::bf16; }
    else
    {
        static_assert(std::is_same_v<T, std::uint8_t>);
        return Dtype::u8;
    }
}

template<class T>
BufferView view_of(std::vector<T>& values)
{
    BufferView view;
    view.data = values.data();
    view.dtype = dtype_of<T>();
    view.count = static_cast<std::int64_t>(values.size());
    return view;
}

}  // namespace plimsoll::testing
