#include "train_bpe.hpp"

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/cores.hpp"
#include "base/digest.hpp"
#include "base/error.hpp"
#include "base/output_folder.hpp"
#include "base/units.hpp"
#include "io/file.hpp"
#include "io/json_text.hpp"
#include "io/tokenizer/train_bpe.hpp"
#include "stoppable_progress.hpp"
#include "text_options.hpp"

namespace plimsoll
{

namespace
{

struct TrainBpeState
{
    TrainBpeOptions options;
    TextChoices text;
    std::string out;
    std::int64_t threads = allowed_cores();
    bool force = false;
    bool dry_run = false;
    bool json = false;
};

void declare_train_bpe(OptionSet& options, TrainBpeState& state)
{
    TrainBpeOptions& o = state.options;
    o.bpe.special_tokens = {"<|endoftext|>"};
    declare_inputs(options, o.inputs, state.text);
    options.add_count("", "vocab", o.bpe.vocab, "number of ids, special tokens and the 256 bytes included")
        .range(1, 268435456.0)
        .peers({"vocab-size"});
    options.add_choice("", "pattern", o.pattern, train_bpe_patterns(), "how text is cut into pieces before merging");
    options
        .add_texts("", "special", o.bpe.special_tokens,
                   "special tokens, in the order of their ids from 0; the first usual one ends documents")
        .value_name("TOKEN ...")
        .peers({"special-tokens"});
    options.add_count("", "min-frequency", o.bpe.min_frequency, "a pair that is met less often is no token");
    options.add_text("", "out", state.out, "the tokenizer.json to write")
        .value_name("FILE")
        .peers({"output", "model-prefix"});
    options.add_choice("", "format", state.text.format, {"auto", "txt", "jsonl", "parquet"},
                       "of all inputs; auto: by their endings");
    declare_documents(options, o.text, state.text);
    options.add_choice("", "on-bad-record", state.text.on_bad_record, {"error", "skip"}, "skip: count it and go on");
    options
        .add_bytes("", "max-record-bytes", o.text.max_record_bytes, "a longer line, paragraph or file is a bad record")
        .range(1, max_record_bytes_limit);
    options.add_count("", "threads", state.threads, "that count pieces; decide no output")
        .range(1, 4096)
        .shown_default("all cores allowed");
    options.add_flag("", "force", state.force, "replace OUT");
    options.add_flag("", "dry-run", state.dry_run, "count the pieces and learn, write nothing");
    options.add_flag("", "json", state.json, "report as JSON on stdout");
}

void validate_train_bpe(TrainBpeState& state)
{
    set_text_options(state.text, state.options.inputs, state.options.text);
    VALIDATE(state.dry_run || !state.out.empty(), UsageError,
             "--out is missing (the tokenizer.json to write). give it, or --dry-run");
    check_bpe_options(state.options.bpe);
    state.options.threads = static_cast<int>(state.threads);
    if (state.out.empty()) { return; }
    VALIDATE(!is_directory(state.out), UsageError, "'{}' is a directory. give --out a file name like {}/tokenizer.json",
             state.out, state.out);
    VALIDATE(state.force || !path_exists(state.out), UsageError,
             "'{}' exists. choose another --out, or --force to replace it", state.out);
    require_writable(parent_of(state.out), "choose another --out");
}

std::string report_json(const TrainBpeReport& report, const TrainBpeState& state)
{
    nlohmann::ordered_json json;
    json["schema_version"] = 1;
    json["out"] = state.dry_run ? nlohmann::ordered_json() : nlohmann::ordered_json(state.out);
    json["pattern"] = state.options.pattern;
    json["vocab"] = report.bpe.tokens.size();
    json["merges"] = report.bpe.merges.size();
    json["last_frequency"] = report.bpe.last_frequency;
    json["sha256"] = sha256_hex(report.json);
    json["input_files"] = report.input_files;
    json["documents"] = report.documents;
    json["text_bytes"] = report.text_bytes;
    json["bad_records"] = report.counts.bad_records;
    json["pieces"] = report.pieces;
    json["distinct_pieces"] = report.distinct_pieces;
    json["threads"] = state.options.threads;
    json["count_seconds"] = report.count_seconds;
    json["learn_seconds"] = report.learn_seconds;
    return json_text(json, 2) + "\n";
}

std::string report_text(const TrainBpeReport& report, const TrainBpeState& state)
{
    const double rate = report.count_seconds > 0 ? static_cast<double>(report.text_bytes) / report.count_seconds : 0;
    std::string text =
        fmt::format("documents  {}   {} of text   bad {}\n", format_grouped(report.documents),
                    format_storage(static_cast<double>(report.text_bytes)), format_grouped(report.counts.bad_records));
    text += fmt::format("pieces     {}, {} distinct   counted at {} with {} thread{} in {}\n",
                        format_grouped(report.pieces), format_grouped(report.distinct_pieces), format_rate(rate),
                        state.options.threads, state.options.threads == 1 ? "" : "s",
                        fmt::format("{:.1f} s", report.count_seconds));
    text += fmt::format("learned    {} ids, {} merges, the last met {} times   in {}\n",
                        format_grouped(static_cast<std::int64_t>(report.bpe.tokens.size())),
                        format_grouped(static_cast<std::int64_t>(report.bpe.merges.size())),
                        format_grouped(report.bpe.last_frequency), fmt::format("{:.1f} s", report.learn_seconds));
    if (static_cast<std::int64_t>(report.bpe.tokens.size()) < state.options.bpe.vocab)
    {
        text += fmt::format("note       the text has no more pairs for {} ids: a model needs only {}\n",
                            format_grouped(state.options.bpe.vocab),
                            format_grouped(static_cast<std::int64_t>(report.bpe.tokens.size())));
    }
    text += state.dry_run ? "dry run    nothing was written\n"
                          : fmt::format("written    {}   pattern {}, sha256 {}\n", state.out, state.options.pattern,
                                        sha256_hex(report.json).substr(0, 16));
    return text;
}

ExitCode run_train_bpe(const TrainBpeState& state)
{
    using Phase = TrainBpeProgress::Phase;
    StoppableProgress progress("count");
    Phase phase = Phase::count;
    const TrainBpeReport report = train_bpe(state.options,
                                            [&](const TrainBpeProgress& now)
                                            {
                                                if (now.phase != phase)
                                                {
                                                    progress.start_phase("learn", ProgressUnit::items);
                                                }
                                                phase = now.phase;
                                                progress.update(now.total, now.done);
                                            });
    progress.finish();
    if (!state.dry_run)
    {
        make_directories(parent_of(state.out));
        write_file_atomically(state.out, report.json);
    }
    const std::string text = state.json ? report_json(report, state) : report_text(report, state);
    std::fwrite(text.data(), 1, text.size(), stdout);
    return ExitCode::done;
}

}  // namespace

Command train_bpe_command()
{
    const auto state = std::make_shared<TrainBpeState>();
    Command command;
    command.name = "train-bpe";
    command.summary = "learns a byte-level BPE from text and writes its tokenizer.json (docs/tokenizers.md)";
    command.run_files = RunFiles::refused;
    command.examples = {"plimsoll-shard train-bpe --input 'text/*.jsonl' --vocab 32768 --out tokenizer.json",
                        "plimsoll-shard train-bpe --input book.txt --vocab 4096 --pattern gpt2 --special "
                        "'<|endoftext|>' '<|pad|>' --out tokenizer.json"};
    command.declare = [state](OptionSet& options) { declare_train_bpe(options, *state); };
    command.validate = [state] { validate_train_bpe(*state); };
    command.run = [state](const Invocation&) { return run_train_bpe(*state); };
    return command;
}

}  // namespace plimsoll
