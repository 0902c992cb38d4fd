#include "exchange.hpp"

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/exit_as.hpp"
#include "base/units.hpp"
#include "io/json_text.hpp"
#include "io/token_formats/convert.hpp"
#include "report.hpp"
#include "stoppable_progress.hpp"

namespace plimsoll
{

namespace
{

struct ExchangeState
{
    ExportOptions to;
    ImportOptions from;
    std::string format;
    std::int64_t token_bytes = 0;
    bool drop_loss_mask = false;
    bool append_eod = false;
    bool force = false;
    bool json = false;
};

const std::vector<std::string> exchange_formats = {"megatron", "llmc", "ds", "mds"};

template<class Body>
auto with_exchange_progress(const char* label, const Body& body)
{
    StoppableProgress progress(label);
    auto report = body([&](std::int64_t total, std::int64_t done) { progress.update(total, done); });
    progress.finish();
    return report;
}

std::string exported_text(const std::vector<ExportedSet>& sets, const ExchangeState& o)
{
    if (o.json)
    {
        nlohmann::ordered_json json;
        json["schema_version"] = 1;
        json["format"] = token_format_name(o.to.format);
        for (const ExportedSet& set : sets)
        {
            json[set.set] = {{"out", set.out}, {"documents", set.documents}, {"tokens", set.tokens}};
            if (o.to.format == TokenFormat::llmc) { json[set.set]["documents_with_eod_inside"] = set.ambiguous; }
        }
        return json_text(json, 2) + "\n";
    }
    std::string text;
    for (const ExportedSet& set : sets)
    {
        text += fmt::format("{:<10} {}   {} documents, {} tokens\n", set.set, set.out, format_grouped(set.documents),
                            format_grouped(set.tokens));
        if (set.ambiguous > 0)
        {
            text +=
                fmt::format("note       {} documents hold the end-of-document id inside: a reader finds two there\n",
                            format_grouped(set.ambiguous));
        }
    }
    return text;
}

std::string imported_text(const ImportReport& report, const ExchangeState& o)
{
    const CorpusManifest& manifest = report.manifest;
    if (o.json)
    {
        nlohmann::ordered_json json;
        json["schema_version"] = 1;
        json["out"] = o.from.out;
        json["tokenizer"] = manifest.tokenizer;
        json["tokenizer_sha256"] = manifest.fingerprint;
        json["vocab"] = manifest.vocab;
        json["dtype"] = std::string(dtype_name(manifest.dtype));
        json["documents"] = report.documents;
        json["empty"] = report.empty;
        json["without_end"] = report.without_end;
        json["without_label"] = report.without_label;
        json["tokens"] = report.tokens;
        json["shards"] = report.shards;
        json["file_bytes"] = report.file_bytes;
        return json_text(json, 2) + "\n";
    }
    std::string text = fmt::format("documents  {}   empty {}   without end {}{}", format_grouped(report.documents),
                                   format_grouped(report.empty), format_grouped(report.without_end),
                                   o.append_eod && report.without_end > 0 ? " (appended)" : "");
    if (report.without_label > 0)
    {
        text += fmt::format("   nothing to learn {}", format_grouped(report.without_label));
    }
    text += fmt::format("\ntokenizer  {}\n", tokenizer_line(manifest.tokenizer, manifest.vocab, manifest.fingerprint));
    text += fmt::format("written    {} tokens, {} shard{}, {}, {}, {}/manifest.json\n", format_grouped(report.tokens),
                        report.shards, report.shards == 1 ? "" : "s", dtype_name(manifest.dtype),
                        format_storage(static_cast<double>(report.file_bytes)), o.from.out);
    return text;
}

void print_exchange(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

}  // namespace

Command export_command()
{
    const auto state = std::make_shared<ExchangeState>();
    Command command;
    command.name = "export";
    command.summary = "writes token shards in the format of another tool (docs/token_formats.md)";
    command.run_files = RunFiles::refused;
    command.positionals = {{"DIR", "directory of shards", 1, 1}};
    command.examples = {"plimsoll-shard export kjv --to megatron --out data/kjv      data/kjv.bin, data/kjv.idx",
                        "plimsoll-shard export kjv --to llmc --out data/kjv          data/kjv_000000.bin ...",
                        "plimsoll-shard export kjv --to mds --out kjv_mds            a directory with index.json"};
    command.declare = [state](OptionSet& options)
    {
        options
            .add_choice("", "to", state->format, exchange_formats,
                        "megatron (.bin, .idx), llmc (.bin), ds (datatrove), mds (MosaicML)")
            .required();
        options.add_text("", "out", state->to.out, "prefix of the files, directory for mds; validation: OUT_validation")
            .value_name("PREFIX")
            .required()
            .peers({"output-prefix", "output"});
        options.add_count("", "file-tokens", state->to.file_tokens, "of each file of llmc")
            .unit("tokens")
            .range(1, 2147483647.0);
        options.add_bytes("", "size-limit", state->to.size_limit, "of a shard of mds").range(1, 4294967295.0);
        options.add_flag("", "drop-loss-mask", state->drop_loss_mask, "go on where the format has no place for one");
        options.add_flag("", "json", state->json, "report as JSON on stdout");
    };
    command.run = [state](const Invocation& invocation)
    {
        state->to.directory = invocation.positionals[0];
        state->to.format = parse_token_format(state->format);
        if (state->drop_loss_mask) { state->to.loss_mask = ExportOptions::LossMask::drop; }
        const auto sets =
            exit_as<FormatError>(ExitCode::fatal,
                                 [&]
                                 {
                                     return with_exchange_progress("export", [&](const ConvertObserver& observer)
                                                                   { return export_shards(state->to, observer); });
                                 });
        print_exchange(exported_text(sets, *state));
        return ExitCode::done;
    };
    return command;
}

Command import_command()
{
    const auto state = std::make_shared<ExchangeState>();
    Command command;
    command.name = "import";
    command.summary = "makes token shards of the files of another tool (docs/token_formats.md)";
    command.run_files = RunFiles::refused;
    command.positionals = {{"PATH", "prefix, file or directory; several follow each other", 1, -1}};
    command.examples = {"plimsoll-shard import data/kjv.idx --from megatron --tokenizer tokenizer.json --out kjv",
                        "plimsoll-shard import fineweb/*.bin --from llmc --vocab 50257 --eod 50256 --out fineweb"};
    command.declare = [state](OptionSet& options)
    {
        ImportOptions& from = state->from;
        options
            .add_choice("", "from", state->format, exchange_formats,
                        "megatron (.bin, .idx), llmc (.bin), ds (datatrove), mds (MosaicML)")
            .required();
        options.add_text("", "out", from.out, "directory of the shards; appears when all are complete")
            .value_name("DIR")
            .required();
        options.add_text("", "tokenizer", from.tokenizer, "that the ids are of; gives vocabulary, end and text bytes");
        options.add_count("", "vocab", from.vocab, "ids are below this, where there is no tokenizer")
            .shown_default("the tokenizer's")
            .range(0, 4294967296.0);
        options.add_count("", "eod", from.eod, "id that ends a document")
            .value_name("ID")
            .shown_default("the tokenizer's")
            .range(-1, 4294967295.0);
        options.add_flag("", "append-eod", state->append_eod, "to documents that do not end with it");
        options
            .add_count("", "shard-tokens", from.shard_tokens, "a shard ends before the document that would exceed it")
            .unit("tokens")
            .range(1);
        options.add_text("", "column", from.mds.tokens_column, "of mds that holds the ids").value_name("NAME");
        options.add_count("", "token-bytes", state->token_bytes, "of an id in a column of mds in the encoding bytes")
            .shown_default("none")
            .range(0, 8);
        options.add_flag("", "force", state->force, "replace the token shards in OUT");
        options.add_flag("", "json", state->json, "report as JSON on stdout");
    };
    command.validate = [state]
    {
        const std::int64_t width = state->token_bytes;
        VALIDATE(width == 0 || width == 2 || width == 4 || width == 8, UsageError, "--token-bytes {} is not 2, 4 or 8",
                 width);
    };
    command.run = [state](const Invocation& invocation)
    {
        ImportOptions& from = state->from;
        from.paths = invocation.positionals;
        from.format = parse_token_format(state->format);
        from.mds.token_bytes = static_cast<int>(state->token_bytes);
        if (state->append_eod) { from.end = ImportOptions::DocumentEnd::append; }
        if (state->force) { from.existing = CorpusOutput::Existing::replace; }
        const ImportReport report = with_exchange_progress("import", [&](const ConvertObserver& observer)
                                                           { return import_tokens(from, observer); });
        print_exchange(imported_text(report, *state));
        return ExitCode::done;
    };
    return command;
}

}  // namespace plimsoll
