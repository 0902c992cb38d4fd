#include "layout/reshard_plan.hpp"

#include <algorithm>
#include <tuple>

#include "base/error.hpp"
#include "layout/box_runs.hpp"

namespace plimsoll
{
namespace
{

std::int64_t begin_of(const Box& box) { return box.shape.empty() ? 0 : box.offset[0]; }
std::int64_t end_of(const Box& box) { return box.shape.empty() ? 1 : box.offset[0] + box.shape[0]; }

std::vector<std::vector<std::size_t>> by_tensor(const std::vector<ReshardBox>& boxes, std::size_t num_tensors)
{
    std::vector<std::vector<std::size_t>> lists(num_tensors);
    for (std::size_t k = 0; k < boxes.size(); ++k)
    {
        EXPECT(boxes[k].tensor < num_tensors && boxes[k].file >= 0);
        if (boxes[k].box.num_elements() > 0) { lists[boxes[k].tensor].push_back(k); }
    }
    return lists;
}

void sort_by_begin(std::vector<std::size_t>& list, const std::vector<ReshardBox>& boxes)
{
    std::sort(list.begin(), list.end(), [&boxes](std::size_t a, std::size_t b)
              { return std::make_tuple(begin_of(boxes[a].box), a) < std::make_tuple(begin_of(boxes[b].box), b); });
}

std::string side_fault(const std::vector<ReshardTensor>& tensors, const std::vector<ReshardBox>& boxes)
{
    std::vector<std::vector<Box>> lists(tensors.size());
    for (const ReshardBox& box : boxes) { lists[box.tensor].push_back(box.box); }
    for (std::size_t k = 0; k < tensors.size(); ++k)
    {
        const std::string fault = coverage_fault(tensors[k].shape, lists[k]);
        if (!fault.empty()) { return fmt::format("{}: {}", tensors[k].name, fault); }
    }
    return "";
}

}  // namespace

ReshardPlan::ReshardPlan(std::vector<ReshardTensor> tensors, std::vector<ReshardBox> sources, std::vector<ReshardBox> targets)
    : tensors_(std::move(tensors)), sources_(std::move(sources)), targets_(std::move(targets))
{
    auto source_lists = by_tensor(sources_, tensors_.size());
    auto target_lists = by_tensor(targets_, tensors_.size());
    for (std::size_t k = 0; k < tensors_.size(); ++k) { intersect(source_lists[k], target_lists[k]); }
    std::sort(copies_.begin(), copies_.end(), [](const ReshardCopy& a, const ReshardCopy& b)
              { return std::tie(a.target, a.common.offset, a.source) < std::tie(b.target, b.common.offset, b.source); });
    first_copy_.assign(targets_.size() + 1, copies_.size());
    for (std::size_t k = copies_.size(); k-- > 0;) { first_copy_[copies_[k].target] = k; }
    for (std::size_t k = targets_.size(); k-- > 0;) { first_copy_[k] = std::min(first_copy_[k], first_copy_[k + 1]); }
}

// Both lists are swept by their begin in dim 0; a source stays active until targets begin behind its end.
void ReshardPlan::intersect(std::vector<std::size_t>& sources, std::vector<std::size_t>& targets)
{
    sort_by_begin(sources, sources_);
    sort_by_begin(targets, targets_);
    std::vector<std::size_t> active;
    std::size_t next = 0;
    ReshardCopy copy;
    for (const std::size_t target : targets)
    {
        const Box& wanted = targets_[target].box;
        while (next < sources.size() && begin_of(sources_[sources[next]].box) < end_of(wanted)) { active.push_back(sources[next++]); }
        active.erase(std::remove_if(active.begin(), active.end(), [&](std::size_t source)
                                    { return end_of(sources_[source].box) <= begin_of(wanted); }),
                     active.end());
        for (const std::size_t source : active)
        {
            if (!intersect_boxes(sources_[source].box, wanted, copy.common)) { continue; }
            copy.source = source;
            copy.target = target;
            copies_.push_back(copy);
        }
    }
}

std::pair<std::size_t, std::size_t> ReshardPlan::copies_of(std::size_t target) const
{
    return {first_copy_.at(target), first_copy_.at(target + 1)};
}

std::int64_t ReshardPlan::bytes_of(const ReshardBox& box) const
{
    return box.box.num_elements() * tensors_[box.tensor].element_bytes;
}

std::int64_t ReshardPlan::total_bytes() const
{
    std::int64_t bytes = 0;
    for (const ReshardTensor& tensor : tensors_) { bytes += shape_elements(tensor.shape) * tensor.element_bytes; }
    return bytes;
}

std::vector<std::int64_t> ReshardPlan::target_file_bytes() const
{
    std::vector<std::int64_t> bytes;
    for (const ReshardBox& target : targets_)
    {
        const auto file = static_cast<std::size_t>(target.file);
        if (bytes.size() <= file) { bytes.resize(file + 1, 0); }
        bytes[file] += bytes_of(target);
    }
    return bytes;
}

void ReshardPlan::prove_coverage() const
{
    const std::string source_fault = side_fault(tensors_, sources_);
    VALIDATE(source_fault.empty(), FormatError, "{}", source_fault);
    const std::string target_fault = side_fault(tensors_, targets_);
    if (!target_fault.empty()) { throw InternalError("reshard plan: " + target_fault); }
    for (std::size_t k = 0; k < targets_.size(); ++k)
    {
        std::int64_t elements = 0;
        const auto range = copies_of(k);
        for (std::size_t c = range.first; c < range.second; ++c) { elements += copies_[c].common.num_elements(); }
        ENSURE(elements == targets_[k].box.num_elements());
    }
}

}  // namespace plimsoll
