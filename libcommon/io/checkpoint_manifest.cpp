// manifest.json, COMMIT and the small helpers of the format.

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>

#include "base/digest.hpp"
#include "base/error.hpp"
#include "base/rng.hpp"
#include "io/checkpoint_format.hpp"
#include "io/file.hpp"

namespace plimsoll
{

const char* checkpoint_state_path(CheckpointState state)
{
    switch (state)
    {
        case CheckpointState::model: return "model";
        case CheckpointState::master: return "optim/master";
        case CheckpointState::exp_avg: return "optim/exp_avg";
        case CheckpointState::exp_avg_sq: return "optim/exp_avg_sq";
    }
    throw InternalError(fmt::format("unknown checkpoint state {}", static_cast<int>(state)));
}

}  // namespace plimsoll

namespace plimsoll::checkpoint
{

using OrderedJson = nlohmann::ordered_json;

Box row_box(const IndexRow& row)
{
    Box box;
    for (std::size_t d = 0; d < row.num_dims && d < max_dims; ++d)
    {
        box.offset.push_back(static_cast<std::int64_t>(row.offset[d]));
        box.shape.push_back(static_cast<std::int64_t>(row.shape[d]));
    }
    return box;
}

std::int64_t num_blocks(std::int64_t bytes)
{
    return (bytes + block_bytes - 1) / block_bytes;
}

std::string tensor_path(CheckpointState state, const std::string& name)
{
    return fmt::format("{}/{}", checkpoint_state_path(state), name);
}

std::uint64_t digest_salt(CheckpointState state, const std::string& name)
{
    return hash_name(tensor_path(state, name));
}

CheckpointState parse_state(const std::string& path, const std::string& origin)
{
    for (const CheckpointState state :
         {CheckpointState::model, CheckpointState::master, CheckpointState::exp_avg, CheckpointState::exp_avg_sq})
    {
        if (path == checkpoint_state_path(state)) { return state; }
    }
    throw FormatError(fmt::format("{}: unknown state '{}'", origin, path));
}

Dtype parse_dtype(const std::string& name, const std::string& origin)
{
    for (int code = 0; code <= static_cast<int>(Dtype::u64); ++code)
    {
        if (name == dtype_name(static_cast<Dtype>(code))) { return static_cast<Dtype>(code); }
    }
    throw FormatError(fmt::format("{}: unknown dtype '{}'", origin, name));
}

std::int64_t tensor_elements(const std::vector<std::int64_t>& shape)
{
    std::int64_t number = 1;
    for (const std::int64_t extent : shape) { number *= extent; }
    return number;
}

std::string hex64(std::uint64_t value)
{
    return fmt::format("{:016x}", value);
}

std::string shard_file_name(std::int64_t shard, std::int64_t num_shards)
{
    return fmt::format("shard_{:05d}_of_{:05d}.h5", shard, num_shards);
}

std::string make_uuid()
{
    std::random_device device;
    std::string uuid;
    for (const int digits : {8, 4, 4, 4, 12})
    {
        if (!uuid.empty()) { uuid += '-'; }
        for (int k = 0; k < digits; ++k) { uuid += "0123456789abcdef"[device() % 16]; }
    }
    return uuid;
}

std::string base_name(const std::string& path)
{
    std::filesystem::path normal = std::filesystem::path(path).lexically_normal();
    if (!normal.has_filename()) { normal = normal.parent_path(); }
    return normal.filename().string();
}

namespace
{

std::string hex32(std::uint32_t value)
{
    return fmt::format("{:08x}", value);
}

std::uint64_t parse_hex(const OrderedJson& value, std::size_t digits, const std::string& field)
{
    const std::string text = value.get<std::string>();
    VALIDATE(text.size() == digits && text.find_first_not_of("0123456789abcdef") == std::string::npos, FormatError,
             "'{}' is '{}', not {} hex digits", field, text, digits);
    return std::stoull(text, nullptr, 16);
}

OrderedJson file_json(const FileRecord& file)
{
    return {{"name", file.name},
            {"bytes", file.bytes},
            {"boxes", file.boxes},
            {"data_bytes", file.data_bytes},
            {"index_crc32c", hex32(file.index_crc)},
            {"blocks_crc32c", hex32(file.blocks_crc)},
            {"skeleton_crc32c", hex32(file.skeleton_crc)}};
}

OrderedJson tensor_json(const TensorRecord& record)
{
    return {{"state", checkpoint_state_path(record.tensor.state)},
            {"name", record.tensor.name},
            {"dtype", dtype_name(record.tensor.dtype)},
            {"shape", record.tensor.shape},
            {"digest", hex64(record.digest)}};
}

FileRecord parse_file(const OrderedJson& json)
{
    FileRecord file;
    file.name = json.at("name").get<std::string>();
    VALIDATE(!file.name.empty() && file.name.find('/') == std::string::npos && file.name[0] != '.', FormatError,
             "file name '{}' leaves the directory", file.name);
    file.bytes = json.at("bytes").get<std::int64_t>();
    file.boxes = json.at("boxes").get<std::int64_t>();
    file.data_bytes = json.at("data_bytes").get<std::int64_t>();
    file.index_crc = static_cast<std::uint32_t>(parse_hex(json.at("index_crc32c"), 8, "index_crc32c"));
    file.blocks_crc = static_cast<std::uint32_t>(parse_hex(json.at("blocks_crc32c"), 8, "blocks_crc32c"));
    file.skeleton_crc = static_cast<std::uint32_t>(parse_hex(json.at("skeleton_crc32c"), 8, "skeleton_crc32c"));
    return file;
}

TensorRecord parse_tensor(const OrderedJson& json, const std::string& path)
{
    TensorRecord record;
    record.tensor.state = parse_state(json.at("state").get<std::string>(), path);
    record.tensor.name = json.at("name").get<std::string>();
    record.tensor.dtype = parse_dtype(json.at("dtype").get<std::string>(), path);
    record.tensor.shape = json.at("shape").get<std::vector<std::int64_t>>();
    VALIDATE(record.tensor.shape.size() <= max_dims, FormatError, "tensor '{}' has {} dims (at most {})",
             record.tensor.name, record.tensor.shape.size(), max_dims);
    std::int64_t bytes = dtype_bytes(record.tensor.dtype);
    for (const std::int64_t extent : record.tensor.shape)
    {
        VALIDATE(extent >= 0 && !__builtin_mul_overflow(bytes, extent, &bytes), FormatError,
                 "tensor '{}' has an impossible shape", record.tensor.name);
    }
    record.digest = parse_hex(json.at("digest"), 16, "digest");
    return record;
}

void check_version(const OrderedJson& json)
{
    VALIDATE(json.at("format").get<std::string>() == format_name, FormatError, "format is '{}', not '{}'",
             json.at("format").get<std::string>(), format_name);
    const auto version = json.at("format_version").get<std::array<std::int64_t, 2>>();
    VALIDATE(version[0] == version_major, FormatError,
             "format version {}.{} is not readable (this version reads {}.x). use a plimsoll of that time", version[0],
             version[1], version_major);
    for (const std::string& feature : json.at("required_features").get<std::vector<std::string>>())
    {
        throw FormatError(fmt::format("needs feature '{}', which this version does not know. use a newer plimsoll", feature));
    }
}

Manifest parse_checked(const OrderedJson& json, const std::string& path)
{
    check_version(json);
    Manifest manifest;
    manifest.version = json.at("format_version").get<std::array<std::int64_t, 2>>();
    manifest.optional_features = json.at("optional_features").get<std::vector<std::string>>();
    manifest.writer = json.at("writer").get<std::string>();
    manifest.uuid = json.at("uuid").get<std::string>();
    manifest.sequence = json.at("sequence").get<std::int64_t>();
    manifest.meta.trainer.step = json.at("step").get<std::int64_t>();
    manifest.meta.precision = json.at("precision").get<std::string>();
    manifest.meta.layout_note = json.at("layout").get<std::string>();
    manifest.meta.model_fingerprint = json.at("model").at("fingerprint").get<std::string>();
    manifest.meta.model_config = json.at("model").at("config").get<std::string>();
    manifest.meta.run_ini = json.at("run_ini").get<std::string>();
    manifest.meta.aliases = json.at("aliases").get<std::map<std::string, std::string>>();
    for (const OrderedJson& file : json.at("files")) { manifest.files.push_back(parse_file(file)); }
    for (const OrderedJson& tensor : json.at("tensors")) { manifest.tensors.push_back(parse_tensor(tensor, path)); }
    return manifest;
}

}  // namespace

std::string manifest_text(const Manifest& manifest)
{
    std::int64_t boxes = 0;
    std::int64_t data_bytes = 0;
    std::int64_t file_bytes = 0;
    OrderedJson files = OrderedJson::array();
    for (const FileRecord& file : manifest.files)
    {
        boxes += file.boxes;
        data_bytes += file.data_bytes;
        file_bytes += file.bytes;
        files.push_back(file_json(file));
    }
    OrderedJson tensors = OrderedJson::array();
    for (const TensorRecord& tensor : manifest.tensors) { tensors.push_back(tensor_json(tensor)); }
    const OrderedJson json = {
        {"format", format_name},
        {"format_version", manifest.version},
        {"required_features", manifest.required_features},
        {"optional_features", manifest.optional_features},
        {"writer", manifest.writer},
        {"uuid", manifest.uuid},
        {"sequence", manifest.sequence},
        {"step", manifest.meta.trainer.step},
        {"precision", manifest.meta.precision},
        {"layout", manifest.meta.layout_note},
        {"block_bytes", block_bytes},
        {"totals",
         {{"tensors", manifest.tensors.size()}, {"boxes", boxes}, {"data_bytes", data_bytes}, {"file_bytes", file_bytes}}},
        {"files", files},
        {"tensors", tensors},
        {"aliases", OrderedJson(manifest.meta.aliases)},
        {"model", {{"fingerprint", manifest.meta.model_fingerprint}, {"config", manifest.meta.model_config}}},
        {"run_ini", manifest.meta.run_ini},
    };
    // A run file may hold any bytes; what is no UTF-8 is replaced rather than refused at the end of a save.
    return json.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

Manifest parse_manifest(const std::string& text, const std::string& path)
{
    try
    {
        return parse_checked(OrderedJson::parse(text), path);
    }
    catch (const OrderedJson::exception& error)
    {
        // The library's texts start with an identifier in brackets.
        std::string reason = error.what();
        reason = reason.substr(std::min(reason.size(), reason.find("] ") + 2));
        throw FormatError(fmt::format("{}: damaged ({})", path, reason));
    }
    catch (Error& error)
    {
        error.add_context(path);
        throw;
    }
}

std::string commit_text(const std::string& manifest)
{
    return fmt::format("{}  {}\n", sha256_hex(manifest), manifest_file);
}

Manifest read_manifest(const std::string& step_dir)
{
    const std::string commit_path = step_dir + "/" + commit_file;
    const std::string manifest_path = step_dir + "/" + manifest_file;
    VALIDATE(path_exists(commit_path), FormatError, "{}: missing (not a committed checkpoint)", commit_path);
    VALIDATE(path_exists(manifest_path), FormatError, "{}: missing", manifest_path);
    const std::string text = read_text_file(manifest_path);
    const std::string commit = read_text_file(commit_path);
    const std::string wanted = commit_text(text);
    if (commit != wanted)
    {
        const bool is_digest = commit.size() == wanted.size() && commit.substr(64) == wanted.substr(64);
        throw FormatError(is_digest ? fmt::format("{}: does not match COMMIT (edited or damaged)", manifest_path)
                                    : fmt::format("{}: is not a sha256 of {} (damaged)", commit_path, manifest_file));
    }
    return parse_manifest(text, manifest_path);
}

std::vector<std::string> size_faults(const std::string& step_dir, const Manifest& manifest)
{
    std::vector<std::string> faults;
    for (const FileRecord& file : manifest.files)
    {
        const std::string path = step_dir + "/" + file.name;
        const std::int64_t bytes = file_size(path);
        if (bytes < 0) { faults.push_back(fmt::format("{}: missing", path)); }
        else if (bytes < file.bytes)
        {
            faults.push_back(fmt::format("{}: truncated ({} bytes, manifest says {})", path, bytes, file.bytes));
        }
        else if (bytes > file.bytes)
        {
            faults.push_back(fmt::format("{}: {} trailing bytes ({} bytes, manifest says {})", path, bytes - file.bytes,
                                         bytes, file.bytes));
        }
    }
    return faults;
}

}  // namespace plimsoll::checkpoint
