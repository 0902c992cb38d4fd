#include "io/corpus_manifest.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/digest.hpp"
#include "base/error.hpp"
#include "io/file.hpp"
#include "io/json_text.hpp"
#include "io/token_shard_format.hpp"

namespace plimsoll
{

using OrderedJson = nlohmann::ordered_json;

namespace
{

constexpr const char* manifest_format = "plimsoll-token-shards";

OrderedJson manifest_row(const CorpusShard& shard)
{
    OrderedJson row;
    row["path"] = shard.info.path;
    row["set"] = shard.set;
    row["bytes"] = shard.info.file_bytes;
    row["documents"] = shard.info.num_documents;
    row["tokens"] = shard.info.num_tokens;
    row["text_bytes"] = shard.info.text_bytes;
    row["tokens_crc32c"] = fmt::format("{:08x}", shard.info.tokens_crc);
    if (shard.info.has_loss_mask) { row["loss_mask_crc32c"] = fmt::format("{:08x}", shard.info.loss_mask_crc); }
    if (shard.info.skeleton_crc) { row["skeleton_crc32c"] = fmt::format("{:08x}", *shard.info.skeleton_crc); }
    return row;
}

OrderedJson totals_of(const CorpusManifest& manifest, const std::string& set)
{
    std::int64_t shards = 0;
    TokenShardInfo sum;
    for (const CorpusShard& shard : manifest.shards)
    {
        if (shard.set != set) { continue; }
        ++shards;
        sum.file_bytes += shard.info.file_bytes;
        sum.num_documents += shard.info.num_documents;
        sum.num_tokens += shard.info.num_tokens;
        sum.text_bytes += shard.info.text_bytes;
    }
    OrderedJson totals;
    totals["shards"] = shards;
    totals["bytes"] = sum.file_bytes;
    totals["documents"] = sum.num_documents;
    totals["tokens"] = sum.num_tokens;
    totals["text_bytes"] = sum.text_bytes;
    return totals;
}

std::uint32_t parse_crc(const std::string& text)
{
    VALIDATE(text.size() == 8 && text.find_first_not_of("0123456789abcdef") == std::string::npos, FormatError,
             "checksum '{}' is not 8 hex digits", text);
    return static_cast<std::uint32_t>(std::stoul(text, nullptr, 16));
}

CorpusShard shard_of(const OrderedJson& row, const CorpusManifest& manifest)
{
    CorpusShard shard;
    shard.set = row.at("set").get<std::string>();
    TokenShardInfo& info = shard.info;
    info.path = row.at("path").get<std::string>();
    info.file_bytes = row.at("bytes").get<std::int64_t>();
    info.num_documents = row.at("documents").get<std::int64_t>();
    info.num_tokens = row.at("tokens").get<std::int64_t>();
    info.text_bytes = row.at("text_bytes").get<std::int64_t>();
    info.tokens_crc = parse_crc(row.at("tokens_crc32c").get<std::string>());
    info.has_loss_mask = row.contains("loss_mask_crc32c");
    if (info.has_loss_mask) { info.loss_mask_crc = parse_crc(row.at("loss_mask_crc32c").get<std::string>()); }
    if (row.contains("skeleton_crc32c"))
    {
        info.skeleton_crc = parse_crc(row.at("skeleton_crc32c").get<std::string>());
    }
    info.tokenizer = manifest.tokenizer;
    info.fingerprint = manifest.fingerprint;
    info.vocab = manifest.vocab;
    info.dtype = manifest.dtype;
    const bool inside = !info.path.empty() && info.path[0] != '/' && info.path.find("..") == std::string::npos;
    VALIDATE(inside, FormatError, "shard path '{}' is not inside the directory", info.path);
    return shard;
}

void check_kind(const OrderedJson& json)
{
    VALIDATE(json.is_object() && json.value("format", "") == manifest_format, FormatError,
             "not a manifest of token shards");
    const auto version = json.at("format_version").get<std::vector<std::uint64_t>>();
    VALIDATE(version.size() == 2 && version[0] == shard_format::version_major, FormatError,
             "format version {} (this version reads {}.x)", fmt::join(version, "."), shard_format::version_major);
}

CorpusManifest parse(const std::string& text)
{
    const OrderedJson json = OrderedJson::parse(text);
    check_kind(json);
    CorpusManifest manifest;
    manifest.required_features = json.at("required_features").get<std::vector<std::string>>();
    for (const std::string& feature : manifest.required_features)
    {
        VALIDATE(feature == shard_format::feature_loss_mask, FormatError,
                 "needs the feature '{}' (not available in this version)", feature);
    }
    const OrderedJson& tokenizer = json.at("tokenizer");
    manifest.tokenizer = tokenizer.at("name").get<std::string>();
    manifest.fingerprint = tokenizer.at("sha256").get<std::string>();
    manifest.vocab = tokenizer.at("vocab").get<std::int64_t>();
    manifest.eod = tokenizer.at("eod").get<std::uint32_t>();
    manifest.dtype = shard_format::token_dtype(manifest.vocab);
    for (const auto& entry : json.at("options").items())
    {
        manifest.options.emplace_back(entry.key(), entry.value().get<std::string>());
    }
    if (json.contains("part"))
    {
        const OrderedJson& part = json.at("part");
        manifest.part = CorpusPart{part.at("index").get<std::int64_t>(), part.at("num").get<std::int64_t>(),
                                   part.at("inputs_sha256").get<std::string>()};
    }
    for (const auto& entry : json.at("input").items())
    {
        manifest.input.emplace_back(entry.key(), entry.value().get<std::int64_t>());
    }
    for (const OrderedJson& row : json.at("shards")) { manifest.shards.push_back(shard_of(row, manifest)); }
    return manifest;
}

}  // namespace

std::string CorpusManifest::options_hash() const
{
    std::string text;
    for (const auto& option : options) { text += option.first + "=" + option.second + "\n"; }
    return sha256_hex(text);
}

std::string corpus_shard_json(const CorpusShard& shard) { return json_text(manifest_row(shard), -1); }

CorpusShard parse_corpus_shard(const std::string& json, const CorpusManifest& manifest)
{
    return shard_of(OrderedJson::parse(json), manifest);
}

std::string manifest_text(const CorpusManifest& manifest)
{
    OrderedJson json;
    json["format"] = manifest_format;
    json["format_version"] = {shard_format::version_major, shard_format::version_minor};
    json["required_features"] = manifest.required_features;
    json["tokenizer"]["name"] = manifest.tokenizer;
    json["tokenizer"]["vocab"] = manifest.vocab;
    json["tokenizer"]["eod"] = manifest.eod;
    json["tokenizer"]["sha256"] = manifest.fingerprint;
    json["dtype"] = std::string(dtype_name(manifest.dtype));
    json["options"] = OrderedJson::object();
    for (const auto& option : manifest.options) { json["options"][option.first] = option.second; }
    json["options_sha256"] = manifest.options_hash();
    if (manifest.part)
    {
        json["part"]["index"] = manifest.part->index;
        json["part"]["num"] = manifest.part->num;
        json["part"]["inputs_sha256"] = manifest.part->inputs_sha256;
    }
    json["input"] = OrderedJson::object();
    for (const auto& count : manifest.input) { json["input"][count.first] = count.second; }
    json["totals"]["train"] = totals_of(manifest, "train");
    json["totals"]["validation"] = totals_of(manifest, "validation");
    json["shards"] = OrderedJson::array();
    for (const CorpusShard& shard : manifest.shards) { json["shards"].push_back(manifest_row(shard)); }
    return json_text(json, 2) + "\n";
}

CorpusManifest read_corpus_manifest(const std::string& directory)
{
    const std::string path = directory + "/" + corpus_manifest_name;
    VALIDATE(path_exists(path), FormatError, "'{}' is no directory of token shards (no {} in it)", directory,
             corpus_manifest_name);
    return with_context(path,
                        [&]
                        {
                            try
                            {
                                return parse(read_text_file(path));
                            }
                            catch (const OrderedJson::parse_error& error)
                            {
                                throw FormatError(fmt::format("not valid json (at byte {})", error.byte));
                            }
                            catch (const OrderedJson::exception&)
                            {
                                throw FormatError("a field is missing or has the wrong type. make the shards again");
                            }
                        });
}

}  // namespace plimsoll
