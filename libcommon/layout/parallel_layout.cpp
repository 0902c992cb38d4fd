#include "layout/parallel_layout.hpp"

#include <cstdlib>
#include <utility>

#include "base/error.hpp"

namespace plimsoll
{
namespace
{

bool heads_divide(const ModelSpec& model, std::int64_t tp)
{
    return model.heads % tp == 0;
}

bool kv_heads_divide(const ModelSpec& model, std::int64_t tp)
{
    return model.kv_heads % tp == 0 || tp % model.kv_heads == 0;
}

bool ffn_divides(const ModelSpec& model, std::int64_t tp)
{
    return model.ffn % tp == 0;
}

/// Every tp that the model allows, space-separated.
std::string allowed_tp(const ModelSpec& model)
{
    std::string text;
    for (std::int64_t tp = 1; tp <= model.heads; ++tp)
    {
        if (heads_divide(model, tp) && kv_heads_divide(model, tp) && ffn_divides(model, tp))
        {
            text += fmt::format("{}{}", text.empty() ? "" : " ", tp);
        }
    }
    return text;
}

void check_degrees(const ParallelLayout& layout, std::vector<std::string>& faults)
{
    const struct { const char* name; std::int64_t value; } degrees[] = {
        {"dp", layout.dp}, {"tp", layout.tp}, {"pp", layout.pp}, {"cp", layout.cp}, {"ep", layout.ep},
        {"micro-batch", layout.micro_batch}, {"global-batch", layout.global_batch},
    };
    for (const auto& degree : degrees)
    {
        if (degree.value < 1) { faults.push_back(fmt::format("{} must be at least 1 (it is {})", degree.name, degree.value)); }
    }
    if (layout.zero_stage < 0 || layout.zero_stage > 3)
    {
        faults.push_back(fmt::format("zero {} is not known (known: 0 1 2 3)", layout.zero_stage));
    }
}

void check_shards(const ParallelLayout& layout, std::vector<std::string>& faults)
{
    if (layout.dp_shard == 0) { return; }
    if (layout.dp_shard < 0 || layout.dp % layout.dp_shard != 0)
    {
        std::string allowed;
        for (std::int64_t part = 1; part <= layout.dp; ++part)
        {
            if (layout.dp % part == 0) { allowed += fmt::format(" {}", part); }
        }
        faults.push_back(fmt::format("dp {} cannot be cut into groups of dp-shard {} (it does not divide). allowed dp-shard:{}",
                                     layout.dp, layout.dp_shard, allowed));
    }
    else if (layout.zero_stage == 0 && layout.dp_shard != layout.dp)
    {
        faults.push_back(fmt::format("dp-shard {} has nothing to shard with zero 0. nearest: zero 1", layout.dp_shard));
    }
}

void check_world(const ParallelLayout& layout, std::int64_t world, std::vector<std::string>& faults)
{
    if (layout.world() == world) { return; }
    std::string names = "tp*pp";
    std::string values = fmt::format("{}*{}", layout.tp, layout.pp);
    if (layout.cp > 1)
    {
        names += "*cp";
        values += fmt::format("*{}", layout.cp);
    }
    const std::int64_t rest = layout.tp * layout.pp * layout.cp;
    const std::int64_t spare = world - layout.world();
    const std::string hint = world % rest == 0
                                 ? fmt::format("nearest: dp={}", world / rest)
                                 : fmt::format("world size must be a multiple of {} = {}. nearest: {}", names, rest,
                                               world < rest ? fmt::format("{} ranks", rest)
                                                            : fmt::format("{} or {} ranks", world / rest * rest,
                                                                          (world / rest + 1) * rest));
    const std::int64_t count = std::llabs(spare);
    faults.push_back(fmt::format("{}*dp = {}*{} = {} does not equal world size {} ({} {} would be {}). {}", names, values,
                                 layout.dp, layout.world(), world, count, count == 1 ? "rank" : "ranks",
                                 spare > 0 ? "idle" : "missing", hint));
}

void check_model(const ParallelLayout& layout, const ModelSpec& model, std::vector<std::string>& faults)
{
    if (!heads_divide(model, layout.tp))
    {
        faults.push_back(fmt::format("{} attention heads cannot be split over tp {} (heads are not cut). allowed tp: {}",
                                     model.heads, layout.tp, allowed_tp(model)));
    }
    if (!kv_heads_divide(model, layout.tp))
    {
        faults.push_back(fmt::format("{} key-value heads cannot be shared by tp {} (neither divides the other). allowed tp: {}",
                                     model.kv_heads, layout.tp, allowed_tp(model)));
    }
    if (!ffn_divides(model, layout.tp))
    {
        faults.push_back(fmt::format("mlp width {} cannot be split over tp {} (it does not divide). allowed tp: {}", model.ffn,
                                     layout.tp, allowed_tp(model)));
    }
    if (model.layers < layout.pp)
    {
        faults.push_back(fmt::format("{} layers cannot fill pp {} stages (each stage needs a layer). allowed pp: 1 to {}",
                                     model.layers, layout.pp, model.layers));
    }
    if (layout.ep > 1)
    {
        faults.push_back(fmt::format("ep {} needs a model with experts ('{}' has none). nearest: ep=1", layout.ep, model.name));
    }
}

void check_batch(const ParallelLayout& layout, std::vector<std::string>& faults)
{
    const std::int64_t step = layout.dp * layout.micro_batch;
    if (layout.global_batch % step == 0) { return; }
    const std::int64_t below = layout.global_batch / step * step;
    const std::string nearest = below == 0 ? fmt::format("{}", step) : fmt::format("{} or {}", below, below + step);
    faults.push_back(fmt::format(
        "global batch {} is not a multiple of dp {} x micro-batch {} = {} (each rank takes whole micro-batches). nearest: {}",
        layout.global_batch, layout.dp, layout.micro_batch, step, nearest));
}

}  // namespace

std::vector<std::string> validate(const ParallelLayout& layout, const ModelSpec& model, std::int64_t world)
{
    std::vector<std::string> faults;
    check_degrees(layout, faults);
    if (!faults.empty()) { return faults; }  // the rules below divide by the degrees
    check_world(layout, world, faults);
    check_shards(layout, faults);
    check_model(layout, model, faults);
    check_batch(layout, faults);
    return faults;
}

std::string layout_text(const ParallelLayout& layout)
{
    const std::pair<const char*, std::int64_t> degrees[] = {
        {"dp", layout.dp}, {"tp", layout.tp}, {"pp", layout.pp}, {"cp", layout.cp}, {"ep", layout.ep}};
    std::string text;
    for (const auto& degree : degrees)
    {
        if (degree.second == 1) { continue; }
        text += fmt::format("{}{} {}", text.empty() ? "" : " ", degree.first, degree.second);
        if (degree.first == degrees[0].first && layout.replicas() > 1) { text += fmt::format(" (shards of {})", layout.shards()); }
    }
    if (text.empty()) { text = "dp 1"; }
    return layout.zero_stage > 0 ? fmt::format("{} zero {}", text, layout.zero_stage) : text;
}

}  // namespace plimsoll
