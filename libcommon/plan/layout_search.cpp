#include "plan/layout_search.hpp"

#include <algorithm>
#include <tuple>

#include "base/error.hpp"

namespace plimsoll
{
namespace
{

enum Change { mesh = 1, zero = 2, micro_batch = 4, sequence_parallel = 8 };

int changes_of(const ParallelLayout& from, const ParallelLayout& to)
{
    int kinds = 0;
    if (from.dp != to.dp || from.tp != to.tp || from.pp != to.pp) { kinds |= mesh; }
    if (from.zero_stage != to.zero_stage) { kinds |= zero; }
    if (from.micro_batch != to.micro_batch) { kinds |= micro_batch; }
    if (from.sequence_parallel != to.sequence_parallel) { kinds |= sequence_parallel; }
    return kinds;
}

int count_changes(int kinds)
{
    return (kinds & mesh ? 1 : 0) + (kinds & zero ? 1 : 0) + (kinds & micro_batch ? 1 : 0) + (kinds & sequence_parallel ? 1 : 0);
}

std::string options_of(const ParallelLayout& from, const ParallelLayout& to)
{
    std::string text;
    const auto add = [&](const char* option, std::int64_t before, std::int64_t after)
    {
        if (before != after) { text += fmt::format("{}{} {}", text.empty() ? "" : " ", option, after); }
    };
    add("--tp", from.tp, to.tp);
    add("--pp", from.pp, to.pp);
    if (!(from.split == to.split)) { text += " --pp-split " + stage_split_text(to.split); }  // with another pp
    add("--dp", from.dp, to.dp);
    add("--zero", from.zero_stage, to.zero_stage);
    add("--micro-batch", from.micro_batch, to.micro_batch);
    if (!from.sequence_parallel && to.sequence_parallel) { text += fmt::format("{}--sequence-parallel", text.empty() ? "" : " "); }
    return text;
}

std::vector<std::int64_t> divisors(std::int64_t value)
{
    std::vector<std::int64_t> found;
    for (std::int64_t d = 1; d <= value; ++d)
    {
        if (value % d == 0) { found.push_back(d); }
    }
    return found;
}

/// Calls visit(layout) for every valid neighbour in the space that search_layouts() names.
template<class Visit>
void for_each_layout(const MemoryPlan& plan, const Visit& visit)
{
    const std::int64_t ranks = plan.layout.dp * plan.layout.tp * plan.layout.pp;
    std::vector<int> zero_stages = {plan.layout.zero_stage};
    for (int stage = plan.layout.zero_stage + 1; stage <= 3; ++stage) { zero_stages.push_back(stage); }
    for (const std::int64_t tp : divisors(ranks))
    {
        for (const std::int64_t pp : divisors(ranks / tp))
        {
            for (const std::int64_t batch : divisors(plan.layout.micro_batch))
            {
                for (const int stage : zero_stages)
                {
                    ParallelLayout layout = with_pp(plan.layout, pp);
                    layout.tp = tp;
                    layout.dp = ranks / tp / pp;
                    layout.micro_batch = batch;
                    layout.zero_stage = stage;
                    // Shards of one rank are the whole: no other layout.
                    if (layout.dp == 1 && stage != plan.layout.zero_stage) { continue; }
                    if (!validate(layout, plan.model, layout.world()).empty()) { continue; }
                    if (token_faults(layout, plan.policies.seq_len).empty()) { visit(layout); }
                    if (layout.sequence_parallel || tp == 1) { continue; }
                    layout.sequence_parallel = true;
                    if (token_faults(layout, plan.policies.seq_len).empty()) { visit(layout); }
                }
            }
        }
    }
}

std::string peak_text(std::int64_t bytes)
{
    const MemoryUnit unit = memory_unit_for(bytes);
    return fmt::format("{} {}", unit.text(bytes), unit.name);
}

std::string largest_categories(const MemoryPeak& peak, const MemoryUnit& unit)
{
    std::vector<int> order;
    for (int c = 0; c < num_memory_uses; ++c) { order.push_back(c); }
    const auto bytes = [&](int c) { return peak.of(static_cast<MemoryUse>(c)); };
    std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return bytes(a) > bytes(b); });
    std::string text;
    for (int i = 0; i < 3; ++i)
    {
        text += fmt::format("{}{} {}", i == 0 ? "" : ", ", memory_use_name(static_cast<MemoryUse>(order[static_cast<std::size_t>(i)])),
                            unit.text(bytes(order[static_cast<std::size_t>(i)])));
    }
    return text + " " + unit.name;
}

/// The best of each kind of change, at most three.
std::string alternatives_text(const LayoutSearch& search, const ParallelLayout& requested)
{
    std::vector<int> seen;
    std::string text;
    for (const LayoutChoice& choice : search.fitting)
    {
        const int kinds = changes_of(requested, choice.layout);
        if (std::find(seen.begin(), seen.end(), kinds) != seen.end() || seen.size() == 3) { continue; }
        text += fmt::format("{}{} ({})", seen.empty() ? "" : ", ", choice.options, peak_text(choice.peak_bytes));
        seen.push_back(kinds);
    }
    return text;
}

}  // namespace

LayoutSearch search_layouts(const MemoryPlan& plan, const MemoryLimit& limit)
{
    LayoutSearch search;
    for_each_layout(plan,
                    [&](const ParallelLayout& layout)
                    {
                        LayoutChoice choice;
                        choice.layout = layout;
                        choice.changes = count_changes(changes_of(plan.layout, layout));
                        choice.options = options_of(plan.layout, layout);
                        choice.peak_bytes = planned_peak_bytes(plan.model, layout, plan.policies);
                        if (search.tried == 0 || choice.peak_bytes < search.smallest.peak_bytes) { search.smallest = choice; }
                        if (choice.peak_bytes <= limit.bytes) { search.fitting.push_back(choice); }
                        ++search.tried;
                    });
    std::stable_sort(search.fitting.begin(), search.fitting.end(),
                     [](const LayoutChoice& a, const LayoutChoice& b)
                     {
                         const auto key = [](const LayoutChoice& c)
                         {
                             return std::make_tuple(c.changes, c.layout.tp * c.layout.pp, -c.layout.micro_batch, c.layout.pp,
                                                    c.peak_bytes);
                         };
                         return key(a) < key(b);
                     });
    return search;
}

std::string refusal_text(const MemoryPlan& plan, const MemoryLimit& limit)
{
    const std::int64_t stage = plan.worst_stage();
    const MemoryPeak& peak = plan.worst().peak();
    const MemoryUnit unit = memory_unit_for(peak.bytes);
    const std::string place = plan.layout.pp > 1 ? fmt::format("on stage {}", stage) : "per rank";
    std::string text = fmt::format("plan needs {} {} {} (limit {}, {}; {}). ", unit.text(peak.bytes), unit.name, place,
                                   peak_text(limit.bytes), limit.source, largest_categories(peak, unit));
    const LayoutSearch search = search_layouts(plan, limit);
    if (!search.fitting.empty()) { return text + "fits: " + alternatives_text(search, plan.layout); }
    const std::string least = search.smallest.options.empty() ? "this layout" : search.smallest.options;
    return text + fmt::format("no layout of {} rank{} fits ({} tried; {} needs least, {}). use more ranks or a smaller seq-len",
                              plan.layout.world(), plan.layout.world() == 1 ? "" : "s", search.tried, least,
                              peak_text(search.smallest.peak_bytes));
}

}  // namespace plimsoll
