#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/exit_as.hpp"
#include "base/units.hpp"
#include "documents.hpp"
#include "io/dedup/dedup.hpp"
#include "io/json_text.hpp"
#include "stoppable_progress.hpp"

namespace plimsoll
{

namespace
{

struct DedupState
{
    DedupOptions dedup;
    std::string method = "exact";
    std::string unit = "words";
    bool force = false;
    bool json = false;
};

std::string dedup_text(const DedupReport& report, const DedupState& o)
{
    const std::int64_t kept = report.documents - report.duplicates;
    if (o.json)
    {
        nlohmann::ordered_json json;
        json["schema_version"] = 1;
        json["out"] = o.dedup.out;
        json["documents"] = report.documents;
        json["kept"] = kept;
        json["duplicates"] = report.duplicates;
        json["clusters"] = report.clusters;
        json["tokens"] = report.tokens;
        json["duplicate_tokens"] = report.duplicate_tokens;
        json["key_files"] = report.key_files;
        return json_text(json, 2) + "\n";
    }
    const auto share = [](std::int64_t part, std::int64_t whole)
    { return whole == 0 ? 0.0 : 100 * static_cast<double>(part) / static_cast<double>(whole); };
    std::string text = fmt::format("documents  {}   duplicates {} ({:.2f} %) in {} clusters\n",
                                   format_grouped(report.documents), format_grouped(report.duplicates),
                                   share(report.duplicates, report.documents), format_grouped(report.clusters));
    text += fmt::format("tokens     {}   of duplicates {} ({:.2f} %)\n", format_grouped(report.tokens),
                        format_grouped(report.duplicate_tokens), share(report.duplicate_tokens, report.tokens));
    const std::size_t shards = report.manifest.shards.size();
    text += fmt::format("written    {} documents, {} shard{}, {}/duplicates.jsonl\n", format_grouped(kept), shards,
                        shards == 1 ? "" : "s", o.dedup.out);
    return text;
}

void declare_dedup(OptionSet& options, DedupState& o)
{
    MinhashParameters& minhash = o.dedup.minhash;
    options.add_text("", "out", o.dedup.out, "directory of the shards that stay").value_name("DIR").required();
    options.add_choice("", "method", o.method, {"exact", "minhash"}, "exact: the same ids; minhash: alike by n-grams")
        .peers({"dedup"});
    options.add_count("", "ngram", minhash.ngram, "units in an n-gram").range(1, 64).peers({"n-grams", "char-ngrams"});
    options.add_choice("", "ngram-of", o.unit, {"words", "tokens"}, "units; words need the tokenizer");
    options.add_count("", "bands", minhash.bands, "keys of a document")
        .range(1, 1024)
        .peers({"num-buckets", "num-bands"});
    options.add_count("", "rows", minhash.rows, "minima in a key")
        .range(1, 1024)
        .peers({"hashes-per-bucket", "minhashes-per-band"});
    options.add_count("", "minhash-seed", minhash.seed, "of the hash functions");
    options.add_text("", "tokenizer", o.dedup.tokenizer, "of the shards").shown_default("by the name in the manifest");
    options.add_bytes("", "memory-limit", o.dedup.memory_limit,
                      "for keys and clusters; what does not fit goes to files in OUT's folder on the way");
    options.add_count("", "threads", o.dedup.threads, "that compute minima; no matter for the result").range(1, 1024);
    options.add_count("", "shard-tokens", o.dedup.shard_tokens, "a shard ends before the document that would exceed it")
        .unit("tokens")
        .range(1);
    options.add_flag("", "force", o.force, "replace the token shards in OUT");
    options.add_flag("", "json", o.json, "report as JSON on stdout");
}

}  // namespace

Command dedup_command()
{
    const auto state = std::make_shared<DedupState>();
    Command command;
    command.name = "dedup";
    command.summary = "copies token shards without the documents that repeat an earlier one";
    command.run_files = RunFiles::refused;
    command.positionals = {{"DIR", "directory of shards", 1, 1}};
    command.examples = {"plimsoll-shard dedup kjv --out kjv_once",
                        "plimsoll-shard dedup web --out web_once --method minhash --threads 16 --memory-limit 32GiB"};
    command.declare = [state](OptionSet& options) { declare_dedup(options, *state); };
    command.run = [state](const Invocation& invocation)
    {
        DedupOptions& dedup = state->dedup;
        dedup.directory = invocation.positionals[0];
        dedup.method = state->method == "exact" ? DedupOptions::Method::exact : DedupOptions::Method::minhash;
        dedup.unit = state->unit == "words" ? DedupOptions::Unit::words : DedupOptions::Unit::tokens;
        if (state->force) { dedup.existing = CorpusOutput::Existing::replace; }
        StoppableProgress progress("dedup");
        const auto observer = [&](std::int64_t total, std::int64_t done) { progress.update(total, done); };
        const DedupReport report = exit_as<FormatError>(ExitCode::fatal, [&] { return dedup_shards(dedup, observer); });
        progress.finish();
        const std::string text = dedup_text(report, *state);
        std::fwrite(text.data(), 1, text.size(), stdout);
        return ExitCode::done;
    };
    return command;
}

}  // namespace plimsoll
