#include "layout/box_runs.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.hpp"

namespace plimsoll
{

namespace
{

bool do_overlap(const Box& a, const Box& b)
{
    for (std::size_t d = 0; d < a.shape.size(); ++d)
    {
        if (std::max(a.offset[d], b.offset[d]) >= std::min(a.offset[d] + a.shape[d], b.offset[d] + b.shape[d])) { return false; }
    }
    return true;
}

}  // namespace

BoxRuns::BoxRuns(const Box& source, const Box& target)
{
    EXPECT(source.shape.size() == target.shape.size());
    const std::size_t num_dims = source.shape.size();
    std::int64_t source_stride = 1;
    std::int64_t target_stride = 1;
    bool whole_below = num_dims > 0;  // all dims behind this one are whole in both boxes
    num_elements_ = 1;
    for (std::size_t d = num_dims; d-- > 0;)
    {
        const std::int64_t begin = std::max(source.offset[d], target.offset[d]);
        const std::int64_t end = std::min(source.offset[d] + source.shape[d], target.offset[d] + target.shape[d]);
        const std::int64_t extent = std::max<std::int64_t>(0, end - begin);
        source_start_ += (begin - source.offset[d]) * source_stride;
        target_start_ += (begin - target.offset[d]) * target_stride;
        if (whole_below && !extent_.empty()) { extent_.back() *= extent; }
        else
        {
            extent_.push_back(extent);
            source_stride_.push_back(source_stride);
            target_stride_.push_back(target_stride);
        }
        whole_below = whole_below && extent == source.shape[d] && extent == target.shape[d];
        num_elements_ *= extent;
        source_stride *= source.shape[d];
        target_stride *= target.shape[d];
    }
    if (extent_.empty())
    {
        extent_ = {1};
        source_stride_ = {1};
        target_stride_ = {1};
    }
    position_.assign(extent_.size(), 0);
    done_ = num_elements_ == 0;
}

bool BoxRuns::next(ElementRun& run)
{
    if (done_) { return false; }
    run.source = source_start_;
    run.target = target_start_;
    run.count = extent_[0];
    for (std::size_t d = 1; d < extent_.size(); ++d)
    {
        run.source += position_[d] * source_stride_[d];
        run.target += position_[d] * target_stride_[d];
    }
    // Dim 0 of the lists is the innermost; count upwards like an odometer.
    std::size_t d = 1;
    while (d < extent_.size() && ++position_[d] == extent_[d]) { position_[d++] = 0; }
    done_ = d >= extent_.size();
    return true;
}

bool intersect_boxes(const Box& a, const Box& b, Box& common)
{
    EXPECT(a.shape.size() == b.shape.size());
    common.offset.resize(a.shape.size());
    common.shape.resize(a.shape.size());
    for (std::size_t d = 0; d < a.shape.size(); ++d)
    {
        const std::int64_t begin = std::max(a.offset[d], b.offset[d]);
        const std::int64_t end = std::min(a.offset[d] + a.shape[d], b.offset[d] + b.shape[d]);
        if (begin >= end) { return false; }
        common.offset[d] = begin;
        common.shape[d] = end - begin;
    }
    return true;
}

std::int64_t shape_elements(const std::vector<std::int64_t>& shape)
{
    std::int64_t result = 1;
    for (const std::int64_t extent : shape) { result *= extent; }
    return result;
}

Box whole_box(const std::vector<std::int64_t>& shape)
{
    Box box;
    box.offset.assign(shape.size(), 0);
    box.shape = shape;
    return box;
}

bool box_inside(const Box& box, const std::vector<std::int64_t>& shape)
{
    if (box.offset.size() != shape.size() || box.shape.size() != shape.size()) { return false; }
    for (std::size_t d = 0; d < shape.size(); ++d)
    {
        if (box.offset[d] < 0 || box.shape[d] < 0 || box.offset[d] > shape[d] || box.shape[d] > shape[d] - box.offset[d])
        {
            return false;
        }
    }
    return true;
}

std::string coverage_fault(const std::vector<std::int64_t>& shape, const std::vector<Box>& boxes)
{
    std::vector<const Box*> order;
    std::int64_t covered = 0;
    for (const Box& box : boxes)
    {
        if (!box_inside(box, shape))
        {
            return fmt::format("box {} is not inside the shape {}", box_text(box), shape_text(shape));
        }
        if (shape_elements(box.shape) == 0) { continue; }
        covered += shape_elements(box.shape);
        order.push_back(&box);
    }
    std::sort(order.begin(), order.end(), [](const Box* a, const Box* b) { return a->offset < b->offset; });
    // Boxes are visited by their start in dim 0; only those that reach further can overlap the next.
    std::vector<const Box*> active;
    for (const Box* box : order)
    {
        if (!shape.empty())
        {
            active.erase(std::remove_if(active.begin(), active.end(),
                                        [&](const Box* other) {
                                            return other->offset[0] + other->shape[0] <= box->offset[0];
                                        }),
                         active.end());
        }
        for (const Box* other : active)
        {
            if (do_overlap(*box, *other))
            {
                return fmt::format("boxes {} and {} overlap", box_text(*other), box_text(*box));
            }
        }
        active.push_back(box);
    }
    const std::int64_t total = shape_elements(shape);
    if (covered != total) { return fmt::format("{} of {} elements are in no box", total - covered, total); }
    return "";
}

std::string box_text(const Box& box)
{
    if (box.shape.empty()) { return "scalar"; }
    std::string text;
    for (std::size_t d = 0; d < box.shape.size(); ++d)
    {
        text += fmt::format("{}[{} {})", d == 0 ? "" : " x ", box.offset[d], box.offset[d] + box.shape[d]);
    }
    return text;
}

std::string shape_text(const std::vector<std::int64_t>& shape)
{
    return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace plimsoll
