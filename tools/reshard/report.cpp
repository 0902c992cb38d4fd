#include "report.hpp"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/suggest.hpp"
#include "base/units.hpp"
#include "io/checkpoint_statistics.hpp"

namespace plimsoll
{

namespace
{

using Json = nlohmann::ordered_json;

std::int64_t elements_of(const CheckpointTensor& tensor)
{
    std::int64_t elements = 1;
    for (const std::int64_t extent : tensor.shape) { elements *= extent; }
    return elements;
}

std::int64_t bytes_of(const CheckpointTensor& tensor) { return elements_of(tensor) * dtype_bytes(tensor.dtype); }

std::string path_of(const CheckpointTensor& tensor) { return std::string(checkpoint_state_path(tensor.state)) + "/" + tensor.name; }

std::string shape_of(const CheckpointTensor& tensor) { return fmt::format("[{}]", fmt::join(tensor.shape, ", ")); }

std::string plural(std::int64_t number, const char* noun)
{
    return fmt::format("{} {}{}", format_grouped(number), noun, number == 1 ? "" : number > 0 && std::string(noun) == "box" ? "es" : "s");
}

std::string hex(std::uint64_t digest) { return fmt::format("{:016x}", digest); }

// The lines of one state: a heading, then its tensors in columns.
std::string state_tree(const std::vector<CheckpointInfo::Tensor>& tensors, CheckpointState state)
{
    std::size_t name_width = 0;
    std::size_t shape_width = 0;
    std::int64_t number = 0;
    std::int64_t bytes = 0;
    for (const CheckpointInfo::Tensor& row : tensors)
    {
        name_width = std::max(name_width, row.tensor.name.size());
        shape_width = std::max(shape_width, shape_of(row.tensor).size());
        if (row.tensor.state != state) { continue; }
        ++number;
        bytes += bytes_of(row.tensor);
    }
    if (number == 0) { return ""; }
    std::string text = fmt::format("\n{}   {}, {}\n", checkpoint_state_path(state), plural(number, "tensor"), storage(bytes));
    for (const CheckpointInfo::Tensor& row : tensors)
    {
        if (row.tensor.state != state) { continue; }
        text += fmt::format("  {:<{}}  {:<7}  {:<{}}  {:>9}  {:>8}  {}\n", row.tensor.name, name_width,
                            dtype_name(row.tensor.dtype), shape_of(row.tensor), shape_width, storage(bytes_of(row.tensor)),
                            plural(row.boxes, "box"), hex(row.digest));
    }
    return text;
}

std::string group_line(const OptimizerGroup& group)
{
    return fmt::format("optimizer  {}: lr {} betas {} {} eps {} weight-decay {}   t {}   {}\n", group.name, number_text(group.lr),
                       number_text(group.beta1), number_text(group.beta2), number_text(group.eps),
                       number_text(group.weight_decay), group.step, plural(static_cast<std::int64_t>(group.tensors.size()), "tensor"));
}

std::string inspect_text(const CheckpointReader& reader)
{
    const CheckpointInfo info = reader.info();
    const CheckpointMeta& meta = reader.meta();
    const TrainerState& trainer = meta.trainer;
    std::string text = fmt::format("{}   step {}, {} in {}   format {} by {}\n", info.path, format_grouped(trainer.step),
                                   storage(info.bytes), plural(static_cast<std::int64_t>(info.files.size()), "file"),
                                   info.format_version, info.writer);
    text += fmt::format("model      {}   {}   written as {}\n", meta.model_fingerprint, meta.precision, meta.layout_note);
    text += fmt::format("trainer    {} samples, {} tokens   seed {}   order {}\n", format_grouped(trainer.consumed_samples),
                        format_grouped(trainer.consumed_tokens), trainer.seed, trainer.data_order);
    text += fmt::format("data       plan {}   tokenizer {}\n", trainer.plan_hash, trainer.tokenizer);
    for (const OptimizerGroup& group : trainer.groups) { text += group_line(group); }
    for (const auto& alias : meta.aliases) { text += fmt::format("alias      {} is {}\n", alias.first, alias.second); }
    for (const CheckpointInfo::File& file : info.files)
    {
        text += fmt::format("file       {}   {}   {}\n", file.name, storage(file.bytes), plural(file.boxes, "box"));
    }
    for (const CheckpointState state :
         {CheckpointState::model, CheckpointState::master, CheckpointState::exp_avg, CheckpointState::exp_avg_sq})
    {
        text += state_tree(info.tensors, state);
    }
    return text;
}

Json trainer_json(const TrainerState& trainer)
{
    Json json = {{"step", trainer.step},
                 {"consumed_samples", trainer.consumed_samples},
                 {"consumed_tokens", trainer.consumed_tokens},
                 {"seed", trainer.seed},
                 {"data_order", trainer.data_order},
                 {"plan_hash", trainer.plan_hash},
                 {"tokenizer", trainer.tokenizer},
                 {"groups", Json::array()}};
    for (const OptimizerGroup& group : trainer.groups)
    {
        json["groups"].push_back({{"name", group.name},
                                  {"lr", group.lr},
                                  {"beta1", group.beta1},
                                  {"beta2", group.beta2},
                                  {"eps", group.eps},
                                  {"weight_decay", group.weight_decay},
                                  {"step", group.step},
                                  {"tensors", group.tensors}});
    }
    return json;
}

Json tensor_json(const CheckpointTensor& tensor)
{
    return {{"state", checkpoint_state_path(tensor.state)},
            {"name", tensor.name},
            {"dtype", dtype_name(tensor.dtype)},
            {"shape", tensor.shape},
            {"bytes", bytes_of(tensor)}};
}

std::string inspect_json(const CheckpointReader& reader)
{
    const CheckpointInfo info = reader.info();
    const CheckpointMeta& meta = reader.meta();
    Json files = Json::array();
    for (const CheckpointInfo::File& file : info.files)
    {
        files.push_back({{"name", file.name}, {"bytes", file.bytes}, {"data_bytes", file.data_bytes}, {"boxes", file.boxes}});
    }
    Json tensors = Json::array();
    for (const CheckpointInfo::Tensor& row : info.tensors)
    {
        Json json = tensor_json(row.tensor);
        json["boxes"] = row.boxes;
        json["digest"] = hex(row.digest);
        tensors.push_back(json);
    }
    const Json json = {{"schema_version", 1},
                       {"path", info.path},
                       {"format_version", info.format_version},
                       {"writer", info.writer},
                       {"uuid", info.uuid},
                       {"bytes", info.bytes},
                       {"precision", meta.precision},
                       {"layout", meta.layout_note},
                       {"model_fingerprint", meta.model_fingerprint},
                       {"trainer", trainer_json(meta.trainer)},
                       {"aliases", Json(meta.aliases)},
                       {"files", files},
                       {"tensors", tensors}};
    return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::vector<CheckpointTensor> matching(const CheckpointReader& reader, const std::string& name)
{
    std::vector<CheckpointTensor> found;
    std::vector<std::string> known;
    for (const CheckpointTensor& tensor : reader.tensors())
    {
        if (tensor.name == name || path_of(tensor) == name) { found.push_back(tensor); }
        known.push_back(name.find('/') == std::string::npos ? tensor.name : path_of(tensor));
    }
    if (found.empty())
    {
        const std::string nearest = nearest_name(name, known);
        throw UsageError(fmt::format("no tensor '{}' in '{}'{}", name, reader.info().path,
                                     nearest.empty() ? "" : fmt::format(". nearest: {}", nearest)));
    }
    return found;
}

// JSON has no NaN: null then.
Json number_json(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

}  // namespace

std::string inspect_report(const CheckpointReader& reader, OutputKind kind)
{
    return kind == OutputKind::json ? inspect_json(reader) : inspect_text(reader);
}

std::string tensor_report(const CheckpointReader& reader, const std::string& name, OutputKind kind)
{
    std::string text;
    Json list = Json::array();
    for (const CheckpointTensor& tensor : matching(reader, name))
    {
        const TensorStatistics statistics = tensor_statistics(reader, tensor);
        Json json = tensor_json(tensor);
        json.update({{"elements", statistics.elements},
                     {"zeros", statistics.zeros},
                     {"not_finite", statistics.not_finite},
                     {"min", statistics.min},
                     {"max", statistics.max},
                     {"mean", statistics.mean},
                     {"rms", statistics.rms},
                     {"std", statistics.deviation},
                     {"first", Json::array()}});
        std::vector<std::string> first;
        for (const double value : statistics.first)
        {
            json["first"].push_back(number_json(value));
            first.push_back(fmt::format("{:.6g}", value));
        }
        list.push_back(json);
        text += fmt::format("{}   {} {}   {} elements, {} zero, {} not finite\n", path_of(tensor), dtype_name(tensor.dtype),
                            shape_of(tensor), format_grouped(statistics.elements), format_grouped(statistics.zeros),
                            format_grouped(statistics.not_finite));
        text += fmt::format("  min {:.6g}   max {:.6g}   mean {:.6g}   std {:.6g}   rms {:.6g}\n", statistics.min, statistics.max,
                            statistics.mean, statistics.deviation, statistics.rms);
        text += fmt::format("  first {}{}\n", fmt::join(first, " "), statistics.elements > 8 ? " ..." : "");
    }
    if (kind == OutputKind::text) { return text; }
    return Json({{"schema_version", 1}, {"path", reader.info().path}, {"tensors", list}}).dump(2) + "\n";
}

std::string verify_report(const std::string& path, const std::string& level, const VerifyReport& report, OutputKind kind)
{
    if (kind == OutputKind::json)
    {
        return Json({{"schema_version", 1},
                     {"path", path},
                     {"level", level},
                     {"files", report.files},
                     {"tensors", report.tensors},
                     {"boxes", report.boxes},
                     {"bytes", report.bytes},
                     {"ok", report.faults.empty()},
                     {"faults", report.faults}})
                   .dump(2, ' ', false, Json::error_handler_t::replace) +
               "\n";
    }
    if (!report.faults.empty()) { return ""; }
    std::string text = fmt::format("{}   {}, {}, {}, {}\n", path, plural(report.files, "file"), plural(report.tensors, "tensor"),
                                   plural(report.boxes, "box"), storage(report.bytes));
    text += "sizes ok";
    if (level != "size") { text += "   coverage ok: every element once"; }
    if (level == "full") { text += fmt::format("   checksums and digests ok: {} read", storage(report.bytes)); }
    return text + "\nok\n";
}

}  // namespace plimsoll
