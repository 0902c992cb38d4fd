#pragma once
/// Arithmetic of boxes: which runs two boxes share, whether boxes cover a tensor exactly, boxes as text. All pure.

#include <cstdint>
#include <string>
#include <vector>

#include "layout/flat_layout.hpp"

namespace plimsoll
{

/// `count` consecutive elements: from `source` in the source box to `target` in the target box (both in C order).
struct ElementRun
{
    std::int64_t source = 0;
    std::int64_t target = 0;
    std::int64_t count = 0;
};

/// The runs of the intersection of two boxes of one tensor, ascending in the source, as long as they can be.
class BoxRuns
{
  public:
    BoxRuns(const Box& source, const Box& target);
    bool next(ElementRun& run);
    /// Elements in all runs.
    std::int64_t num_elements() const { return num_elements_; }

  private:
    // Trailing dims that are whole in both boxes are folded into one, so that the innermost dim is a run.
    std::vector<std::int64_t> extent_, source_stride_, target_stride_, position_;
    std::int64_t source_start_ = 0, target_start_ = 0;
    std::int64_t num_elements_ = 0;
    bool done_ = false;
};

/// Product of the extents; 1 of a scalar.
std::int64_t shape_elements(const std::vector<std::int64_t>& shape);

Box whole_box(const std::vector<std::int64_t>& shape);
bool box_inside(const Box& box, const std::vector<std::int64_t>& shape);

/// False, and `common` undefined, when the two share no element. @pre the same number of dims
bool intersect_boxes(const Box& a, const Box& b, Box& common);

/// Empty when each element of a tensor of `shape` lies in exactly one of the boxes; else what is wrong, in words.
std::string coverage_fault(const std::vector<std::int64_t>& shape, const std::vector<Box>& boxes);

/// "[0 4) x [8 16)", "scalar".
std::string box_text(const Box& box);
/// "[32, 8]", "[]".
std::string shape_text(const std::vector<std::int64_t>& shape);

}  // namespace plimsoll
