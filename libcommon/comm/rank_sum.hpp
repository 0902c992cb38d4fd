#pragma once
/// Sums and maxima over ranks in group-rank order: the one arithmetic of every back end, so that their bits agree.

#include <cstdint>

#include "base/dtype.hpp"
#include "comm/communicator.hpp"

namespace plimsoll
{

/// f32, f64, bf16, i32, i64 and u8.
bool can_reduce(Dtype dtype);

/// accumulator[i] = accumulator[i] op input[i]: called for ranks 0, 1, 2, ... in turn. Sums of f32 are rounded to f32 after
/// each rank, of f64 to f64, of bf16 to bf16 (not so in reduce_ranks()); integers wrap; a maximum with a NaN is NaN. `input` may be `accumulator`. @pre can_reduce(dtype)
void accumulate(Dtype dtype, ReduceOp op, void* accumulator, const void* input, std::int64_t count);
/// out[i] = a[i] op b[i]; `out` may be `a` or `b`.
void reduce_pair(Dtype dtype, ReduceOp op, void* out, const void* a, const void* b, std::int64_t count);
/// out[i] = inputs[0][i] op inputs[1][i] op ... from the left; `out` may be one of the inputs. bf16 is summed in fp32 and rounded
/// once, behind the last rank. @pre num_inputs >= 1
void reduce_ranks(Dtype dtype, ReduceOp op, void* out, const void* const* inputs, std::int64_t num_inputs,
                  std::int64_t count);

struct Part
{
    std::int64_t first = 0;
    std::int64_t count = 0;
};
/// Which elements of `count` a member sums for all: equal parts, rounded up to 64 elements, the last ones may be empty.
Part part_of(std::int64_t count, std::int64_t size, std::int64_t rank);

}  // namespace plimsoll
