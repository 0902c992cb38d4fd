#include "report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/units.hpp"

namespace plimsoll
{

namespace
{

std::string counted(std::int64_t num, const std::string& what)
{
    return format_grouped(num) + " " + what + (num == 1 ? "" : "s");
}

double bytes_per_token(const CorpusReport& report)
{
    const std::int64_t tokens = report.train.tokens + report.validation.tokens;
    return tokens == 0 ? 0
                       : static_cast<double>(report.train.text_bytes + report.validation.text_bytes) /
                             static_cast<double>(tokens);
}

std::string time_split(const CorpusReport& report)
{
    const double whole = std::max(report.seconds, 1e-9);
    const auto share = [&](double seconds) { return static_cast<int>(100 * seconds / whole + 0.5); };
    return fmt::format("{}, {}, read {} % parse {} % tokenize {} % write {} %", format_clock(report.seconds),
                       format_rate(static_cast<double>(report.counts.bytes) / whole), share(report.read_seconds),
                       share(report.parse_seconds), share(report.tokenize_seconds), share(report.write_seconds));
}

nlohmann::ordered_json set_json(const CorpusSet& set)
{
    nlohmann::ordered_json json;
    json["shards"] = set.shards;
    json["documents"] = set.documents;
    json["tokens"] = set.tokens;
    json["text_bytes"] = set.text_bytes;
    json["file_bytes"] = set.file_bytes;
    return json;
}

}  // namespace

std::string tokenizer_line(const std::string& name, std::int64_t vocab, const std::string& fingerprint)
{
    return fmt::format("{}, {} ids, sha256 {}...", name, vocab, fingerprint.substr(0, 12));
}

std::string corpus_report_text(const CorpusReport& report, const std::string& out, CorpusOptions::Mode mode)
{
    const bool dry_run = mode == CorpusOptions::Mode::dry_run;
    std::string text = fmt::format("documents  {}   empty {}   bad {}", format_grouped(report.documents),
                                   format_grouped(report.empty), format_grouped(report.counts.bad_records));
    if (report.counts.bad_records > 0)
    {
        const char* fate = report.replaced_bad_records ? "replaced" : "skipped";
        text += dry_run ? fmt::format(" ({})", fate) : fmt::format(" ({}, see {}/bad_records.jsonl)", fate, out);
    }
    if (report.counts.invalid_utf8 > 0)
    {
        text += fmt::format("   invalid utf-8 {} (as U+FFFD)", format_grouped(report.counts.invalid_utf8));
    }
    if (report.counts.lone_surrogates > 0)
    {
        text += fmt::format("   lone surrogates {} (as U+FFFD)", format_grouped(report.counts.lone_surrogates));
    }
    text += fmt::format("\ntokens     {}   {:.2f} bytes/token   longest document {}\n",
                        format_grouped(report.train.tokens + report.validation.tokens), bytes_per_token(report),
                        format_grouped(report.longest_tokens));
    if (report.validation.documents > 0)
    {
        text += fmt::format("validation {}, {} ({:.2f} %), {}\n", counted(report.validation.documents, "document"),
                            counted(report.validation.tokens, "token"),
                            100.0 * static_cast<double>(report.validation.tokens) /
                                static_cast<double>(report.train.tokens + report.validation.tokens),
                            counted(report.validation.shards, "shard"));
    }
    const std::string shards = counted(report.train.shards + report.validation.shards, "shard");
    const std::string dtype(dtype_name(report.manifest.dtype));
    if (dry_run)
    {
        text += fmt::format("dry run    would write {}, {}; nothing was written       {}\n", shards, dtype,
                            time_split(report));
        return text;
    }
    text += fmt::format("written    {}, {}, {}, {}/manifest.json       {}\n", shards, dtype,
                        format_storage(static_cast<double>(report.train.file_bytes + report.validation.file_bytes)),
                        out, time_split(report));
    return text;
}

std::string corpus_report_json(const CorpusReport& report, const std::string& out, CorpusOptions::Mode mode)
{
    nlohmann::ordered_json json;
    json["schema_version"] = 1;
    json["dry_run"] = mode == CorpusOptions::Mode::dry_run;
    json["out"] = out;
    json["tokenizer"] = report.manifest.tokenizer;
    json["tokenizer_sha256"] = report.manifest.fingerprint;
    json["vocab"] = report.manifest.vocab;
    json["dtype"] = std::string(dtype_name(report.manifest.dtype));
    for (const auto& count : report.manifest.input) { json["input"][count.first] = count.second; }
    json["train"] = set_json(report.train);
    json["validation"] = set_json(report.validation);
    json["bytes_per_token"] = bytes_per_token(report);
    json["seconds"]["total"] = report.seconds;
    json["seconds"]["read"] = report.read_seconds;
    json["seconds"]["parse"] = report.parse_seconds;
    json["seconds"]["tokenize"] = report.tokenize_seconds;
    json["seconds"]["write"] = report.write_seconds;
    return json.dump(2) + "\n";
}

}  // namespace plimsoll
