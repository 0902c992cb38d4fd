#pragma once
/// Digests of boxes for checkpoints; the arithmetic of boxes is layout's. Pure.

#include <cstdint>
#include <vector>

#include "layout/box_runs.hpp"

namespace plimsoll::checkpoint
{

using plimsoll::box_inside;
using plimsoll::box_text;
using plimsoll::BoxRuns;
using plimsoll::coverage_fault;
using plimsoll::ElementRun;
using plimsoll::shape_text;
using plimsoll::whole_box;

/// Digest of a box's elements as they pass in C order (base/digest.hpp): index = linear index in the whole tensor, salt =
/// hash of "state/name". Digests of the boxes of a tensor add up to the tensor's.
class BoxDigest
{
  public:
    BoxDigest(const Box& box, const std::vector<std::int64_t>& global_shape, std::int64_t element_bytes,
              std::uint64_t salt);
    void add(const void* data, std::int64_t num_elements);
    std::uint64_t value() const { return value_; }

  private:
    BoxRuns runs_;
    ElementRun run_;
    std::int64_t element_bytes_;
    std::uint64_t salt_;
    std::uint64_t value_ = 0;
};

/// Digest of the elements [begin, begin + count) of `box` in its C order; parts of a box add up to its digest.
std::uint64_t box_range_digest(const Box& box, const std::vector<std::int64_t>& global_shape, std::int64_t element_bytes,
                               std::uint64_t salt, std::int64_t begin, std::int64_t count, const void* data);

}  // namespace plimsoll::checkpoint
