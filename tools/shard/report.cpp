#include "report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/units.hpp"
#include "io/json_text.hpp"

namespace plimsoll
{

namespace
{

std::string counted(std::int64_t num, const std::string& what)
{
    return format_grouped(num) + " " + what + (num == 1 ? "" : "s");
}

/// Of text by this process: what an earlier one did is not its speed.
double bytes_done(const CorpusReport& report)
{
    const double all = static_cast<double>(report.counts.text_bytes);
    const double share = report.counts.bytes == 0
                             ? 1
                             : 1 - static_cast<double>(report.resumed_bytes) / static_cast<double>(report.counts.bytes);
    return all * share;
}

double bytes_per_token(const CorpusReport& report)
{
    const std::int64_t tokens = report.train.tokens + report.validation.tokens;
    return tokens == 0 ? 0
                       : static_cast<double>(report.train.text_bytes + report.validation.text_bytes) /
                             static_cast<double>(tokens);
}

/// Shares of the work of all threads; the speed is that of the text as it was before compression.
std::string time_split(const CorpusReport& report)
{
    const double whole = std::max(report.seconds, 1e-9);
    const double work =
        std::max(report.read_seconds + report.parse_seconds + report.tokenize_seconds + report.write_seconds, 1e-9);
    const auto share = [&](double seconds) { return static_cast<int>(100 * seconds / work + 0.5); };
    return fmt::format("{}, {}, read {} % parse {} % tokenize {} % write {} %", format_clock(report.seconds),
                       format_rate(bytes_done(report) / whole), share(report.read_seconds), share(report.parse_seconds),
                       share(report.tokenize_seconds), share(report.write_seconds));
}

constexpr double length_shares[] = {0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99};

std::string lengths_line(const CorpusReport& report)
{
    std::string text = "lengths    tokens of a document:";
    for (const double share : length_shares)
    {
        text += fmt::format(" p{:.0f} {}", share * 100, format_grouped(report.lengths.quantile(share)));
    }
    text += fmt::format(" max {}", format_grouped(report.counts.longest));
    if (report.cache_lookups > 0)
    {
        text += fmt::format("   pieces from the cache {:.1f} %",
                            100 * static_cast<double>(report.cache_hits) / static_cast<double>(report.cache_lookups));
    }
    return text + "\n";
}

const char* special_fate(SpecialInText special)
{
    switch (special)
    {
        case SpecialInText::match: return "as tokens";
        case SpecialInText::error: return "bad records";
        default: return "as text";
    }
}

std::string dropped_text(const DropCounts& dropped)
{
    std::string reasons;
    for (int i = 1; i < num_drop_reasons; ++i)
    {
        const std::int64_t num = dropped.by_reason[static_cast<std::size_t>(i)];
        if (num == 0) { continue; }
        reasons += fmt::format("{}{} {}", reasons.empty() ? "" : ", ", drop_reason_name(static_cast<DropReason>(i)),
                               format_grouped(num));
    }
    return fmt::format("   dropped {} ({})", format_grouped(dropped.total()), reasons);
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
    std::string text = fmt::format("documents  {}   empty {}   bad {}", format_grouped(report.counts.documents),
                                   format_grouped(report.counts.empty), format_grouped(report.counts.bad));
    if (report.counts.bad > 0)
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
    if (report.counts.unlabelled > 0)
    {
        text += fmt::format("   without a trained token {}", format_grouped(report.counts.unlabelled));
    }
    if (report.counts.dropped.total() > 0) { text += dropped_text(report.counts.dropped); }
    if (report.counts.special_in_text > 0)
    {
        text += fmt::format("   special-in-text {} ({})", format_grouped(report.counts.special_in_text),
                            special_fate(report.special_in_text));
    }
    text += fmt::format("\ntokens     {}   {:.2f} bytes/token   longest document {}",
                        format_grouped(report.train.tokens + report.validation.tokens), bytes_per_token(report),
                        format_grouped(report.counts.longest));
    if (report.counts.unknown > 0) { text += fmt::format("   unknown {}", format_grouped(report.counts.unknown)); }
    if (report.counts.byte_fallback > 0)
    {
        text += fmt::format("   bytes of unknown characters {}", format_grouped(report.counts.byte_fallback));
    }
    text += "\n";
    text += lengths_line(report);
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
    for (const double share : length_shares)
    {
        json["document_tokens"][fmt::format("p{:.0f}", share * 100)] = report.lengths.quantile(share);
    }
    json["document_tokens"]["max"] = report.counts.longest;
    json["threads"] = report.threads;
    json["bytes_per_second"] = report.seconds > 0 ? bytes_done(report) / report.seconds : 0;
    json["resumed_bytes"] = report.resumed_bytes;
    json["cache"]["lookups"] = report.cache_lookups;
    json["cache"]["hits"] = report.cache_hits;
    json["seconds"]["total"] = report.seconds;
    json["seconds"]["read"] = report.read_seconds;
    json["seconds"]["parse"] = report.parse_seconds;
    json["seconds"]["tokenize"] = report.tokenize_seconds;
    json["seconds"]["write"] = report.write_seconds;
    return json_text(json, 2) + "\n";
}

}  // namespace plimsoll
