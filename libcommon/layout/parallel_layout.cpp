#include "layout/parallel_layout.hpp"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <numeric>
#include <utility>

#include "base/error.hpp"
#include "base/units.hpp"

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
        {"micro-batch", layout.micro_batch}, {"global-batch", layout.global_batch}, {"virtual-stages", layout.virtual_stages},
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
    if (layout.virtual_stages == 1 && model.layers < layout.pp)
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

std::string list_text(const std::vector<std::int64_t>& layers) { return fmt::format("{}", fmt::join(layers, ",")); }

std::string even_split_text(std::int64_t layers, std::int64_t parts)
{
    std::vector<std::int64_t> even(static_cast<std::size_t>(parts), layers / parts);
    for (std::int64_t i = 0; i < layers % parts; ++i) { ++even[static_cast<std::size_t>(i)]; }
    return list_text(even);
}

/// "stages", or what makes them virtual.
std::string parts_text(const ParallelLayout& layout)
{
    if (layout.virtual_stages == 1) { return "stages"; }
    return fmt::format("virtual stages (pp {} x virtual-stages {})", layout.pp, layout.virtual_stages);
}

/// Layers over virtual stages.
void check_split(const ParallelLayout& layout, const ModelSpec& model, std::vector<std::string>& faults)
{
    const std::int64_t parts = layout.num_virtual_stages();
    if (model.layers < parts)
    {
        if (layout.virtual_stages == 1) { return; }  // said of pp
        const std::int64_t most = model.layers / layout.pp;
        faults.push_back(fmt::format("{} layers cannot fill {} virtual stages (pp {} x virtual-stages {}, each needs a layer). {}",
                                     model.layers, parts, layout.pp, layout.virtual_stages,
                                     most >= 2 ? fmt::format("nearest: virtual-stages {}", most)
                                               : fmt::format("nearest: pp {}", model.layers / layout.virtual_stages)));
        return;
    }
    if (layout.split.kind != SplitKind::listed) { return; }
    const std::vector<std::int64_t>& listed = layout.split.layers;
    const std::string text = list_text(listed), nearest = even_split_text(model.layers, parts);
    if (static_cast<std::int64_t>(listed.size()) != parts)
    {
        faults.push_back(fmt::format("pp-split {} has {} {}, the layout {} {}. nearest: {}", text, listed.size(),
                                     listed.size() == 1 ? "number" : "numbers", parts, parts_text(layout), nearest));
        return;
    }
    for (std::size_t i = 0; i < listed.size(); ++i)
    {
        if (listed[i] >= 1) { continue; }
        faults.push_back(
            fmt::format("pp-split {} gives {} {} no layer (each needs one). nearest: {}", text,
                        layout.virtual_stages == 1 ? "stage" : "virtual stage", i, nearest));
        return;
    }
    const std::int64_t sum = std::accumulate(listed.begin(), listed.end(), std::int64_t{0});
    if (sum == model.layers) { return; }
    std::vector<std::int64_t> mended = listed;
    mended.back() += model.layers - sum;
    faults.push_back(fmt::format("pp-split {} has {} layers, the model {}. nearest: {}", text, sum, model.layers,
                                 mended.back() >= 1 ? list_text(mended) : nearest));
}

}  // namespace

StageSplit parse_stage_split(const std::string& text)
{
    StageSplit split;
    if (text == "even") { return split; }
    if (text == "auto")
    {
        split.kind = SplitKind::by_cost;
        return split;
    }
    split.kind = SplitKind::listed;
    std::size_t begin = 0;
    while (begin <= text.size())
    {
        const std::size_t end = std::min(text.find(',', begin), text.size());
        const std::string word = text.substr(begin, end - begin);
        VALIDATE(!word.empty() && word.find_first_not_of("0123456789") == std::string::npos && word.size() < 10, ConfigError,
                 "pp-split '{}' is not known (even, auto, or the layers of each stage such as 7,9,9,7)", text);
        split.layers.push_back(parse_count(word));
        begin = end + 1;
    }
    return split;
}

std::string stage_split_text(const StageSplit& split)
{
    switch (split.kind)
    {
        case SplitKind::even: return "even";
        case SplitKind::by_cost: return "auto";
        case SplitKind::listed: return list_text(split.layers);
    }
    throw InternalError("unknown stage split");
}

std::vector<std::string> schedule_faults(const ParallelLayout& layout)
{
    std::vector<std::string> faults;
    const char* name = pipeline_kind_name(layout.schedule);
    if (default_num_chunks(layout.schedule) == 1)
    {
        if (layout.virtual_stages > 1)
        {
            faults.push_back(fmt::format("schedule {} has one chunk per stage (virtual-stages is {}). nearest: virtual-stages 1, or "
                                         "schedule interleaved", name, layout.virtual_stages));
        }
        return faults;
    }
    if (layout.pp == 1)
    {
        faults.push_back(fmt::format("schedule {} needs at least 2 stages (pp is 1). nearest: pp 2, or schedule 1f1b", name));
    }
    if (layout.schedule == PipelineKind::zbv && layout.virtual_stages != 2)
    {
        faults.push_back(
            fmt::format("schedule zbv has 2 chunks per stage (virtual-stages is {}). nearest: virtual-stages 2", layout.virtual_stages));
    }
    if (layout.schedule != PipelineKind::interleaved) { return faults; }
    if (layout.virtual_stages < 2)
    {
        faults.push_back(fmt::format("schedule interleaved needs at least 2 chunks per stage (virtual-stages is {}). nearest: "
                                     "virtual-stages 2, or schedule 1f1b", layout.virtual_stages));
    }
    const std::int64_t per_round = layout.dp * layout.micro_batch;
    if (layout.global_batch % per_round == 0 && layout.accumulation() % layout.pp != 0)
    {
        const std::int64_t group = per_round * layout.pp, below = layout.global_batch / group * group;
        faults.push_back(fmt::format("schedule interleaved takes micro-batches in groups of pp {} ({} are accumulated: global-batch {} / "
                                     "(dp {} x micro-batch {})). nearest: global-batch {}", layout.pp, layout.accumulation(),
                                     layout.global_batch, layout.dp, layout.micro_batch,
                                     below == 0 ? fmt::format("{}", group) : fmt::format("{} or {}", below, below + group)));
    }
    return faults;
}

std::vector<std::string> token_faults(const ParallelLayout& layout, std::int64_t seq_len)
{
    const std::int64_t tokens = layout.micro_batch * seq_len;
    if (!layout.sequence_parallel || layout.tp <= 1 || tokens < 1 || layout.cuts_tokens(tokens)) { return {}; }
    const std::int64_t least = layout.tp / std::gcd(layout.tp, seq_len), below = layout.micro_batch / least * least;
    const std::string nearest = below == 0 ? fmt::format("{}", least) : fmt::format("{} or {}", below, below + least);
    return {fmt::format("sequence-parallel cannot cut micro-batch {} x seq-len {} = {} tokens over tp {} (it does not divide). "
                        "nearest: micro-batch {}, or without sequence-parallel",
                        layout.micro_batch, seq_len, tokens, layout.tp, nearest)};
}

ParallelLayout with_pp(ParallelLayout layout, std::int64_t pp)
{
    if (pp != layout.pp && layout.split.kind == SplitKind::listed) { layout.split = StageSplit(); }
    layout.pp = pp;
    return layout;
}

std::vector<std::string> validate(const ParallelLayout& layout, const ModelSpec& model, std::int64_t world)
{
    std::vector<std::string> faults;
    check_degrees(layout, faults);
    if (!faults.empty()) { return faults; }  // the rules below divide by the degrees
    check_world(layout, world, faults);
    check_shards(layout, faults);
    check_model(layout, model, faults);
    check_batch(layout, faults);
    check_split(layout, model, faults);
    for (std::string& fault : schedule_faults(layout)) { faults.push_back(std::move(fault)); }
    return faults;
}

AxisOrder parse_axis_order(const std::string& text)
{
    const std::pair<const char*, MeshAxis> known[] = {
        {"tp", MeshAxis::tp}, {"cp", MeshAxis::cp}, {"dp", MeshAxis::dp}, {"pp", MeshAxis::pp}};
    std::vector<MeshAxis> axes;
    std::vector<std::string> seen;
    for (std::size_t begin = 0; begin <= text.size();)
    {
        const std::size_t end = std::min(text.find(',', begin), text.size());
        const std::string word = text.substr(begin, end - begin);
        begin = end + 1;
        const auto axis = std::find_if(std::begin(known), std::end(known), [&](const auto& row) { return word == row.first; });
        VALIDATE(axis != std::end(known) || word == "ep", ConfigError,
                 "axis-order '{}' names no axis '{}' (known: tp cp ep dp pp). write tp,cp,ep,dp,pp in the order wanted", text, word);
        VALIDATE(std::find(seen.begin(), seen.end(), word) == seen.end(), ConfigError, "axis-order '{}' names {} twice", text, word);
        seen.push_back(word);
        if (axis != std::end(known)) { axes.push_back(axis->second); }
    }
    for (const auto& row : known)
    {
        VALIDATE(std::find(seen.begin(), seen.end(), row.first) != seen.end(), ConfigError,
                 "axis-order '{}' leaves out {} (each axis has its place)", text, row.first);
    }
    AxisOrder order{};
    std::copy(axes.begin(), axes.end(), order.begin());
    return order;
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
        if (degree.first == degrees[1].first && layout.sequence_parallel) { text += " (sequence parallel)"; }
    }
    if (text.empty()) { text = "dp 1"; }
    if (layout.pp > 1 && layout.schedule != PipelineKind::one_f_one_b)
    {
        text += fmt::format(" {}", pipeline_kind_name(layout.schedule));
        if (layout.schedule == PipelineKind::interleaved) { text += fmt::format(" virtual-stages {}", layout.virtual_stages); }
    }
    if (layout.split.kind != SplitKind::even) { text += fmt::format(" pp-split {}", stage_split_text(layout.split)); }
    return layout.zero_stage > 0 ? fmt::format("{} zero {}", text, layout.zero_stage) : text;
}

}  // namespace plimsoll
