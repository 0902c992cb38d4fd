#include "comm/rank_sum.hpp"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/bf16.hpp"
#include "base/error.hpp"

namespace plimsoll
{

namespace
{

template<class T>
T add(T a, T b)
{
    if constexpr (std::is_floating_point_v<T>) { return a + b; }
    else if constexpr (std::is_same_v<T, Bf16>) { return Bf16(float(a) + float(b)); }
    else
    {
        using Unsigned = std::make_unsigned_t<T>;  // wraps without undefined behaviour
        return static_cast<T>(static_cast<Unsigned>(static_cast<Unsigned>(a) + static_cast<Unsigned>(b)));
    }
}

template<class T>
T larger(T a, T b)
{
    if constexpr (std::is_integral_v<T>) { return a > b ? a : b; }
    else { return a > b || a != a ? a : b; }
}

// `out` is an input or apart from both, element by element: no iteration waits for another.
#if defined(__clang__)
#define PLIMSOLL_INDEPENDENT  // Clang asks at run time, and warns where it is told so and does not vectorise
#else
#define PLIMSOLL_INDEPENDENT _Pragma("GCC ivdep")
#endif

constexpr std::int64_t bf16_block = 2048;

template<class T>
void pair_of(ReduceOp op, T* out, const T* a, const T* b, std::int64_t count)
{
    if (op == ReduceOp::sum)
    {
        PLIMSOLL_INDEPENDENT
        for (std::int64_t i = 0; i < count; ++i) { out[i] = add(a[i], b[i]); }
    }
    else
    {
        PLIMSOLL_INDEPENDENT
        for (std::int64_t i = 0; i < count; ++i) { out[i] = larger(a[i], b[i]); }
    }
}

/// Calls `body` with a value of the type that `dtype` names.
template<class Body>
void with_type(Dtype dtype, Body&& body)
{
    switch (dtype)
    {
        case Dtype::f32: return body(float());
        case Dtype::f64: return body(double());
        case Dtype::bf16: return body(Bf16());
        case Dtype::i32: return body(std::int32_t());
        case Dtype::i64: return body(std::int64_t());
        case Dtype::u8: return body(std::uint8_t());
        default: throw InternalError(fmt::format("no sum of {} over ranks", dtype_name(dtype)));
    }
}

/// One block of a sum of three and more, in fp32 up to the last input.
void sum_bf16(Bf16* out, const void* const* inputs, std::int64_t num_inputs, std::int64_t done, std::int64_t num)
{
    float sums[bf16_block];
    const auto input = [&](std::int64_t i) { return static_cast<const Bf16*>(inputs[i]) + done; };
    const auto add_up = [&](const auto& from, const Bf16* next, auto* to)
    {
        PLIMSOLL_INDEPENDENT
        for (std::int64_t i = 0; i < num; ++i) { to[i] = std::remove_reference_t<decltype(*to)>(float(from[i]) + float(next[i])); }
    };
    add_up(input(0), input(1), sums);
    for (std::int64_t i = 2; i + 1 < num_inputs; ++i) { add_up(sums, input(i), sums); }
    add_up(sums, input(num_inputs - 1), out);
}

}  // namespace

bool can_reduce(Dtype dtype)
{
    switch (dtype)
    {
        case Dtype::f32:
        case Dtype::f64:
        case Dtype::bf16:
        case Dtype::i32:
        case Dtype::i64:
        case Dtype::u8: return true;
        default: return false;
    }
}

void reduce_pair(Dtype dtype, ReduceOp op, void* out, const void* a, const void* b, std::int64_t count)
{
    with_type(dtype,
              [&](auto value)
              {
                  using T = decltype(value);
                  pair_of(op, static_cast<T*>(out), static_cast<const T*>(a), static_cast<const T*>(b), count);
              });
}

void accumulate(Dtype dtype, ReduceOp op, void* accumulator, const void* input, std::int64_t count)
{
    reduce_pair(dtype, op, accumulator, accumulator, input, count);
}

void reduce_ranks(Dtype dtype, ReduceOp op, void* out, const void* const* inputs, std::int64_t num_inputs,
                  std::int64_t count)
{
    EXPECT(num_inputs >= 1 && can_reduce(dtype));
    // A block of sums stays in the first cache, so `out` may be an input and each input is read once.
    constexpr std::int64_t block_bytes = 8192;
    alignas(64) char block[block_bytes];
    const std::int64_t size = dtype_bytes(dtype);
    for (std::int64_t done = 0; done < count;)
    {
        std::int64_t num = std::min(count - done, block_bytes / size);
        const auto at = [&](std::int64_t input) { return static_cast<const char*>(inputs[input]) + done * size; };
        char* target = static_cast<char*>(out) + done * size;
        if (num_inputs == 1) { std::memmove(target, at(0), static_cast<std::size_t>(num * size)); }
        else if (num_inputs == 2) { reduce_pair(dtype, op, target, at(0), at(1), num); }
        else if (dtype == Dtype::bf16 && op == ReduceOp::sum)
        {
            num = std::min(num, bf16_block);
            sum_bf16(reinterpret_cast<Bf16*>(target), inputs, num_inputs, done, num);
        }
        else
        {
            reduce_pair(dtype, op, block, at(0), at(1), num);
            for (std::int64_t i = 2; i + 1 < num_inputs; ++i) { accumulate(dtype, op, block, at(i), num); }
            reduce_pair(dtype, op, target, block, at(num_inputs - 1), num);
        }
        done += num;
    }
}

Part part_of(std::int64_t count, std::int64_t size, std::int64_t rank)
{
    constexpr std::int64_t granule = 64;
    const std::int64_t even = (count + size - 1) / size;
    const std::int64_t length = (even + granule - 1) / granule * granule;
    Part part;
    part.first = std::min(count, length * rank);
    part.count = std::min(count, length * (rank + 1)) - part.first;
    return part;
}

}  // namespace plimsoll
