#include "inspect.hpp"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.hpp"
#include "base/exit_as.hpp"
#include "base/progress.hpp"
#include "base/units.hpp"
#include "documents.hpp"
#include "io/corpus.hpp"
#include "io/file.hpp"
#include "io/json_text.hpp"
#include "io/tokenizer/tokenizer.hpp"
#include "report.hpp"
#include "token_files_report.hpp"

namespace plimsoll
{

namespace
{

using Json = nlohmann::ordered_json;

void check_named(const std::string& path)
{
    VALIDATE(path_exists(path), UsageError, "cannot open '{}' (no such file or directory)", path);
    if (is_directory(path)) { return; }
    exit_as<IoError>(ExitCode::usage, [&] { const File readable(path, File::Mode::read); });
}

struct Spread
{
    std::uint64_t shortest = 0, median = 0, longest = 0;  ///< tokens of a document
};

Spread spread_of(const std::vector<std::uint64_t>& ends)
{
    std::vector<std::uint64_t> lengths(ends.size());
    for (std::size_t i = 0; i < ends.size(); ++i) { lengths[i] = ends[i] - (i == 0 ? 0 : ends[i - 1]); }
    std::sort(lengths.begin(), lengths.end());
    return {lengths.front(), lengths[lengths.size() / 2], lengths.back()};
}

std::int64_t num_masked(const TokenShardReader& reader)
{
    constexpr std::int64_t step = 1 << 20;
    std::vector<std::uint8_t> mask(step);
    std::int64_t masked = 0;
    for (std::int64_t begin = 0; reader.info().has_loss_mask && begin < reader.info().num_tokens; begin += step)
    {
        const std::int64_t num = std::min(step, reader.info().num_tokens - begin);
        reader.read_loss_mask(begin, num, mask.data());
        masked += std::count(mask.begin(), mask.begin() + num, std::uint8_t{0});
    }
    return masked;
}

std::string inspect_file(const std::string& path, OutputKind kind)
{
    const TokenShardReader reader(path);
    const TokenShardInfo& info = reader.info();
    const Spread spread = spread_of(reader.document_ends());
    const std::int64_t masked = num_masked(reader);
    if (kind == OutputKind::json)
    {
        Json json;
        json["schema_version"] = 1;
        json["path"] = path;
        json["file_bytes"] = info.file_bytes;
        json["tokenizer"] = info.tokenizer;
        json["tokenizer_sha256"] = info.fingerprint;
        json["vocab"] = info.vocab;
        json["dtype"] = std::string(dtype_name(info.dtype));
        json["tokens"] = info.num_tokens;
        json["tokens_crc32c"] = fmt::format("{:08x}", info.tokens_crc);
        json["documents"] = info.num_documents;
        json["text_bytes"] = info.text_bytes;
        json["shortest_document_tokens"] = spread.shortest;
        json["median_document_tokens"] = spread.median;
        json["longest_document_tokens"] = spread.longest;
        json["loss_mask"] = info.has_loss_mask;
        json["masked_tokens"] = masked;
        return json_text(json, 2) + "\n";
    }
    std::string text =
        fmt::format("{}   token shard, {}\n", path, format_storage(static_cast<double>(info.file_bytes)));
    text += fmt::format("tokenizer  {}\n", tokenizer_line(info.tokenizer, info.vocab, info.fingerprint));
    // Shards made of another tool's, without its tokenizer, do not know their text.
    const std::string ratio =
        info.text_bytes > 0
            ? fmt::format("{:.2f}", static_cast<double>(info.text_bytes) / static_cast<double>(info.num_tokens))
            : "n/a";
    text += fmt::format("tokens     {}   {}   {} bytes/token   crc32c {:08x}\n", format_grouped(info.num_tokens),
                        dtype_name(info.dtype), ratio, info.tokens_crc);
    text += fmt::format("documents  {}   tokens: shortest {}, median {}, longest {}\n",
                        format_grouped(info.num_documents), format_grouped(static_cast<std::int64_t>(spread.shortest)),
                        format_grouped(static_cast<std::int64_t>(spread.median)),
                        format_grouped(static_cast<std::int64_t>(spread.longest)));
    text += info.has_loss_mask ? fmt::format("loss mask  {} of {} tokens masked\n", format_grouped(masked),
                                             format_grouped(info.num_tokens))
                               : std::string("loss mask  none, every token counts\n");
    return text;
}

std::string inspect_directory(const std::string& path, OutputKind kind)
{
    const CorpusManifest manifest = read_corpus_manifest(path);
    if (kind == OutputKind::json)
    {
        Json json = Json::parse(manifest_text(manifest));
        json["schema_version"] = 1;
        json["path"] = path;
        return json_text(json, 2) + "\n";
    }
    std::string text = fmt::format("{}   token shards   {}\n", path, dtype_name(manifest.dtype));
    text += fmt::format("tokenizer  {}\noptions   ",
                        tokenizer_line(manifest.tokenizer, manifest.vocab, manifest.fingerprint));
    for (const auto& option : manifest.options)
    {
        if (option.first != "tokenizer-sha256") { text += fmt::format(" {} {}  ", option.first, option.second); }
    }
    text += "\ninput     ";
    for (const auto& count : manifest.input)
    {
        text += fmt::format(" {} {}  ", count.first, format_grouped(count.second));
    }
    std::size_t width = 5;
    for (const CorpusShard& shard : manifest.shards) { width = std::max(width, shard.info.path.size()); }
    text += fmt::format("\n\n{:{}}  {:>12} {:>16} {:>10} {:>10}  {:>8}\n", "shard", width, "documents", "tokens",
                        "text", "file", "crc32c");
    TokenShardInfo sum;
    for (const CorpusShard& shard : manifest.shards)
    {
        const TokenShardInfo& info = shard.info;
        text += fmt::format("{:{}}  {:>12} {:>16} {:>10} {:>10}  {:08x}\n", info.path, width,
                            format_grouped(info.num_documents), format_grouped(info.num_tokens),
                            format_storage(static_cast<double>(info.text_bytes)),
                            format_storage(static_cast<double>(info.file_bytes)), info.tokens_crc);
        sum.num_documents += info.num_documents;
        sum.num_tokens += info.num_tokens;
        sum.text_bytes += info.text_bytes;
        sum.file_bytes += info.file_bytes;
    }
    text += fmt::format("{:{}}  {:>12} {:>16} {:>10} {:>10}\n", "total", width, format_grouped(sum.num_documents),
                        format_grouped(sum.num_tokens), format_storage(static_cast<double>(sum.text_bytes)),
                        format_storage(static_cast<double>(sum.file_bytes)));
    return text;
}

std::string marked_text(const TokenShardReader& reader, std::int64_t begin, std::int64_t end, const std::string& kind)
{
    const TokenShardInfo& info = reader.info();
    const auto tokenizer = tokenizer_of_shards(kind, info.tokenizer, info.fingerprint, info.path);
    const std::int64_t num = end - begin;
    std::vector<std::int64_t> wide(static_cast<std::size_t>(num));
    std::vector<std::uint8_t> mask(wide.size());
    reader.read(begin, num, wide.data());
    reader.read_loss_mask(begin, num, mask.data());
    const std::vector<std::uint32_t> ids(wide.begin(), wide.end());
    std::string text;
    for (std::size_t at = 0; at < ids.size();)
    {
        std::size_t stop = at;
        while (stop < ids.size() && (mask[stop] == 0) == (mask[at] == 0)) { ++stop; }
        const std::string part = tokenizer->decode(ids.data() + at, static_cast<std::int64_t>(stop - at));
        text += mask[at] == 0 ? "[[" + part + "]]" : part;
        at = stop;
    }
    if (text.empty() || text.back() != '\n') { text += '\n'; }
    return text;
}

std::vector<std::string> shard_paths(const std::string& path)
{
    if (!is_directory(path)) { return {path}; }
    std::vector<std::string> paths;
    for (const CorpusShard& shard : read_corpus_manifest(path).shards)
    {
        paths.push_back(path + "/" + shard.info.path);
    }
    return paths;
}

}  // namespace

std::string inspect_text(const std::string& path, OutputKind kind)
{
    if (const auto format = token_format_of(path)) { return token_files_text(*format, path, kind); }
    check_named(path);
    return is_directory(path) ? inspect_directory(path, kind) : inspect_file(path, kind);
}

std::string document_text(const std::string& path, std::int64_t number, const std::string& tokenizer)
{
    check_named(path);
    std::int64_t before = 0;
    for (const std::string& shard : shard_paths(path))
    {
        const TokenShardReader reader(shard);
        const std::int64_t local = number - before;
        before += reader.info().num_documents;
        if (local < 0 || number >= before) { continue; }
        const std::vector<std::uint64_t> ends = reader.document_ends();
        const std::uint64_t begin = local == 0 ? 0 : ends[static_cast<std::size_t>(local - 1)];
        return marked_text(reader, static_cast<std::int64_t>(begin),
                           static_cast<std::int64_t>(ends[static_cast<std::size_t>(local)]), tokenizer);
    }
    throw UsageError(fmt::format("no document {} in '{}' (it has {}, counted from 0)", number, path, before));
}

std::string verify_text(const std::vector<std::string>& paths, OutputKind kind)
{
    std::int64_t total = 0;
    for (const std::string& path : paths)
    {
        if (const auto format = token_format_of(path))
        {
            total += token_files_info(*format, path).file_bytes;
            continue;
        }
        check_named(path);
        for (const std::string& shard : shard_paths(path)) { total += std::max<std::int64_t>(0, file_size(shard)); }
    }
    Progress progress(stderr, kind_of(stderr), "verify", ProgressUnit::bytes, total);
    std::int64_t done = 0;
    const auto on_bytes = [&](std::int64_t bytes) { progress.update(done += bytes); };
    std::int64_t shards = 0;
    TokenShardInfo sum;
    const auto add = [&](const TokenShardInfo& info)
    {
        ++shards;
        sum.num_tokens += info.num_tokens;
        sum.num_documents += info.num_documents;
        sum.file_bytes += info.file_bytes;
    };
    std::int64_t of_others = 0;
    std::int64_t tokens_of_others = 0;
    for (const std::string& path : paths)
    {
        if (const auto format = token_format_of(path))
        {
            const TokenFilesInfo info = verify_token_files(*format, path, on_bytes);
            of_others += info.num_files;
            tokens_of_others += std::max<std::int64_t>(0, info.num_tokens);
            continue;
        }
        if (is_directory(path))
        {
            for (const CorpusShard& shard : verify_corpus(path, on_bytes).shards) { add(shard.info); }
            continue;
        }
        const TokenShardReader reader(path);
        reader.verify(on_bytes);
        add(reader.info());
    }
    progress.finish();
    if (kind == OutputKind::json)
    {
        Json json;
        json["schema_version"] = 1;
        json["verdict"] = "ok";
        json["shards"] = shards;
        json["documents"] = sum.num_documents;
        json["tokens"] = sum.num_tokens;
        json["file_bytes"] = sum.file_bytes;
        json["files_of_other_formats"] = of_others;
        json["tokens_of_other_formats"] = tokens_of_others;
        return json_text(json, 2) + "\n";
    }
    std::string text;
    if (of_others > 0)
    {
        text = fmt::format("verify     ok: {} file{} of other formats, {} tokens; they hold no checksums\n",
                           format_grouped(of_others), of_others == 1 ? "" : "s", format_grouped(tokens_of_others));
        if (shards == 0) { return text; }
    }
    return text + fmt::format("verify     ok: {} shard{}, {} documents, {} tokens, {}, every checksum matches\n",
                              shards, shards == 1 ? "" : "s", format_grouped(sum.num_documents),
                              format_grouped(sum.num_tokens), format_storage(static_cast<double>(sum.file_bytes)));
}

}  // namespace plimsoll
