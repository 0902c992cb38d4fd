#include "token_files_report.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "base/units.hpp"
#include "io/json_text.hpp"

namespace plimsoll
{

namespace
{

struct FormatWords
{
    const char* title;
    const char* file;  ///< what one of them is called
};

FormatWords words_of(TokenFormat format)
{
    switch (format)
    {
        case TokenFormat::megatron: return {"Megatron's .bin and .idx", "pair"};
        case TokenFormat::llmc: return {"llm.c's .bin", "file"};
        case TokenFormat::datatrove: return {"datatrove's .ds", "file"};
        default: return {"MosaicML's MDS", "shard"};
    }
}

}  // namespace

std::string token_files_text(TokenFormat format, const std::string& path, OutputKind kind)
{
    const TokenFilesInfo info = token_files_info(format, path);
    if (kind == OutputKind::json)
    {
        nlohmann::ordered_json json;
        json["schema_version"] = 1;
        json["path"] = path;
        json["format"] = token_format_name(format);
        json["dtype"] = info.dtype;
        json["files"] = info.num_files;
        json["file_bytes"] = info.file_bytes;
        if (info.num_tokens >= 0) { json["tokens"] = info.num_tokens; }
        if (info.num_documents >= 0) { json["documents"] = info.num_documents; }
        json["loss_mask"] = info.has_loss_mask;
        for (const auto& note : info.notes) { json[note.first] = note.second; }
        return json_text(json, 2) + "\n";
    }
    const FormatWords words = words_of(format);
    std::string text =
        fmt::format("{}   {}   {} {}{}, {}\n", path, words.title, format_grouped(info.num_files), words.file,
                    info.num_files == 1 ? "" : "s", format_storage(static_cast<double>(info.file_bytes)));
    text += fmt::format("tokens     {}   {}\n",
                        info.num_tokens < 0 ? "not in the index, verify counts them" : format_grouped(info.num_tokens),
                        info.dtype);
    text += fmt::format("documents  {}\n",
                        info.num_documents < 0 ? "the format does not tell" : format_grouped(info.num_documents));
    if (info.has_loss_mask) { text += "loss mask  there\n"; }
    for (const auto& note : info.notes) { text += fmt::format("{:<10} {}\n", note.first, note.second); }
    return text;
}

}  // namespace plimsoll
