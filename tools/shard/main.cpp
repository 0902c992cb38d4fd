// plimsoll-shard: text to token shards, and a look at them.

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/error.hpp"
#include "base/run_tool.hpp"
#include "base/units.hpp"
#include "documents.hpp"
#include "exchange.hpp"
#include "inspect.hpp"
#include "layout/run_config.hpp"
#include "shard_run.hpp"
#include "text_options.hpp"
#include "train_bpe.hpp"

namespace
{

using namespace plimsoll;

struct Options
{
    RunConfig config;
    CorpusOptions corpus;
    MergeRun merge;
    TextChoices text;
    std::string special_in_text = "text";
    std::int64_t shard_index = -1;
    std::int64_t num_shards = 0;
    bool restart = false;
    std::string chat_template = "chatml";
    std::string out;
    bool force = false;
    bool dry_run = false;
    bool json = false;
    std::int64_t document_number = -1;
    std::string inspect_tokenizer;
};

void print(const std::string& text) { std::fwrite(text.data(), 1, text.size(), stdout); }

/// "0.5%" as a share; the unit is needed, since 0.5 could mean both.
std::string set_validation(const OptionValue& value, double& share)
{
    const std::string& text = value.text;
    VALIDATE(text == "0" || (text.size() > 1 && text.back() == '%'), UsageError,
             "validation '{}' is not a percentage. write it like 0.5%", text);
    share = text == "0" ? 0 : parse_number(text.substr(0, text.size() - 1)) / 100;
    VALIDATE(share >= 0 && share < 1, UsageError, "validation '{}' is out of range (at least 0%, less than 100%)",
             text);
    return share == 0 ? "0" : number_text(share * 100) + "%";
}

void declare_records(OptionSet& options, Options& o)
{
    RecordOptions& records = o.corpus.text.records;
    options.add_choice("", "template", o.chat_template, {"chatml", "llama3"},
                       "of --format chat: which special tokens surround a message");
    options.add_text("", "messages-field", records.messages_field, "field of a chat").value_name("NAME");
    options.add_text("", "prompt-field", records.prompt_field, "field of prompt-completion").value_name("NAME");
    options.add_text("", "completion-field", records.completion_field, "the same").value_name("NAME");
}

/// What would be passed over without a word is refused.
void check_used_options(const OptionSet& options, const Options& o)
{
    const std::string& format = o.text.format;
    for (const auto& row :
         {std::make_pair("template", "chat"), std::make_pair("messages-field", "chat"),
          std::make_pair("prompt-field", "prompt-completion"), std::make_pair("completion-field", "prompt-completion")})
    {
        VALIDATE(!options.is_set(row.first) || format == row.second, UsageError,
                 "--{} is for --format {} alone (here it is {}). leave it out", row.first, row.second, format);
    }
    const bool records = format == "chat" || format == "prompt-completion" || format == "tokens";
    VALIDATE(!records || !options.is_set("text-field"), UsageError,
             "--text-field is for plain texts (--format {} has fields of its own). leave it out", format);
    const DocumentFilterOptions& filter = o.corpus.filter;
    VALIDATE(!records || !filter.any_of_text(), UsageError,
             "limits of bytes, characters and lines are for plain texts (--format {} is none). use --min-tokens and "
             "--max-tokens",
             format);
    const auto check_order = [](const char* what, std::int64_t least, std::int64_t most)
    {
        VALIDATE(most == 0 || least <= most, UsageError, "--min-{0} {1} is above --max-{0} {2} (no document is both)",
                 what, least, most);
    };
    check_order("bytes", filter.min_bytes, filter.max_bytes);
    check_order("tokens", filter.min_tokens, filter.max_tokens);
}

void declare(OptionSet& options, Options& o)
{
    declare_run_config(options, o.config);
    declare_inputs(options, o.corpus.inputs, o.text);
    options
        .add_text("", "tokenizer", o.corpus.tokenizer,
                  "bytes (id = byte, 256 ends a document), tokenizer.json, x.tiktoken or x.model (docs/tokenizers.md)")
        .peers({"tokenizer-type", "tokenizer-model"});
    options.add_text("", "out", o.out, "directory of the shards; appears when all are complete")
        .value_name("DIR")
        .peers({"output-prefix", "output"});
    options
        .add_choice("", "format", o.text.format,
                    {"auto", "txt", "jsonl", "parquet", "prompt-completion", "chat", "tokens"},
                    "of all inputs; auto: by their endings. The last three are jsonl whose records give a loss mask: "
                    "prompt and completion, messages of a chat, input_ids and labels");
    declare_records(options, o);
    declare_document_filter(options, o.corpus.filter);
    declare_documents(options, o.corpus.text, o.text);
    options
        .add_count("", "shard-tokens", o.corpus.shard_tokens, "a shard ends before the document that would exceed it")
        .unit("tokens")
        .range(1);
    options
        .add_custom(
            "", "validation", OptionSet::Arity::one, "0",
            [&o](const OptionValue& value) { return set_validation(value, o.corpus.validation); },
            "share of documents for OUT/validation, chosen by a hash of their text keyed by --seed N ([run] seed, the "
            "run's): 0.5%")
        .value_name("SHARE")
        .peers({"split"});
    options.add_choice(
        "", "on-bad-record", o.text.on_bad_record, {"error", "skip", "replace"},
        "skip: go on and list them in OUT/bad_records.jsonl; replace: and put a document of one U+FFFD in their place");
    options
        .add_bytes("", "max-record-bytes", o.corpus.text.max_record_bytes,
                   "a longer line, paragraph, file or string is a bad record; memory is at most 32 MiB + 24 x (threads "
                   "+ 1) x block-bytes + 9 x the longest record")
        .range(1, max_record_bytes_limit);
    options
        .add_bytes("", "block-bytes", o.corpus.text.block_bytes,
                   "text that each of --threads N ([run] threads, by default all cores allowed) has at a time; neither "
                   "decides the output")
        .range(1, 1 << 30);
    options.add_choice("", "special-in-text", o.special_in_text, {"text", "match", "error"},
                       "what the text of a special token means in a document: text, the token, a bad record");
    options.add_text("", "eod", o.corpus.tokenizer_options.eod, "special token that ends a document")
        .value_name("TOKEN")
        .shown_default("the tokenizer's own");
    options.add_count("", "shard-index", o.shard_index, "this task's number, from 0: $SLURM_ARRAY_TASK_ID")
        .value_name("N")
        .shown_default("none")
        .range(-1);
    options
        .add_count("", "num-shards", o.num_shards, "tasks that share the input; each writes OUT/part_N, then `merge`")
        .value_name("N")
        .shown_default("none")
        .range(0)
        .peers({"partitions"});
    options.add_flag("", "restart", o.restart, "begin anew instead of going on with the unfinished run for OUT");
    options.add_flag("", "force", o.force, "replace the token shards in OUT");
    options.add_flag("", "dry-run", o.dry_run, "read and count everything, write nothing");
    options.add_flag("", "json", o.json, "report as JSON on stdout");
    options.add_peer_hint("workers", "--threads N");
    options.add_peer_hint("processes", "--threads N");
    options.add_peer_hint("append-eod", "nothing to say: every document ends with its end-of-document token");
    options.on_parsed([&options, &o] { check_used_options(options, o); });
}

void validate(Options& o)
{
    TextInputOptions& text = o.corpus.text;
    set_text_options(o.text, o.corpus.inputs, text);
    VALIDATE(o.dry_run || !o.out.empty(), UsageError,
             "--out is missing (directory of the shards). give it, or --dry-run");
    o.corpus.out = o.out;
    o.corpus.seed = o.config.run.seed;
    o.corpus.existing = o.force ? CorpusOptions::Existing::replace : CorpusOptions::Existing::refuse;
    o.corpus.mode = o.dry_run ? CorpusOptions::Mode::dry_run : CorpusOptions::Mode::write;
    o.corpus.unfinished = o.restart ? CorpusOptions::Unfinished::restart : CorpusOptions::Unfinished::go_on;
    o.corpus.threads = static_cast<int>(o.config.run.threads);
    o.corpus.tokenizer_options.special_in_text = o.special_in_text == "match"   ? SpecialInText::match
                                                 : o.special_in_text == "error" ? SpecialInText::error
                                                                                : SpecialInText::text;
    VALIDATE((o.shard_index >= 0) == (o.num_shards > 0), UsageError,
             "--shard-index and --num-shards go together. give both");
    VALIDATE(o.num_shards == 0 || o.shard_index < o.num_shards, UsageError,
             "--shard-index {} is not below --num-shards {} (it counts from 0)", o.shard_index, o.num_shards);
    o.corpus.part = std::max<std::int64_t>(0, o.shard_index);
    o.corpus.num_parts = o.num_shards;
    RecordOptions& records = text.records;
    records.format = o.text.format == "chat"                ? RecordFormat::chat
                     : o.text.format == "tokens"            ? RecordFormat::tokens
                     : o.text.format == "prompt-completion" ? RecordFormat::prompt_completion
                                                            : RecordFormat::text;
    if (records.format != RecordFormat::text) { text.format = TextFormat::jsonl; }
    records.chat_template = o.chat_template == "llama3" ? ChatTemplate::llama3 : ChatTemplate::chatml;
}

Command shard_command(Options& o)
{
    Command command;
    command.summary = "turns text into token shards (docs/token_shards.md)";
    command.examples =
        {"plimsoll-shard --config demo.ini --input 'text/*.jsonl' --tokenizer bytes --out kjv "
         "--shard-tokens 64M --validation 0.5%",
         "plimsoll-shard --input book.txt --document blank-line --out book --dry-run",
         "plimsoll-shard --input 'text/*.jsonl.zst' --out parts --shard-index $SLURM_ARRAY_TASK_ID --num-shards 16",
         "plimsoll-shard merge 'parts/part_*' --out kjv    the parts as one",
         "plimsoll-shard inspect kjv                       what is in a directory or a shard",
         "plimsoll-shard inspect kjv --document 17         the text of one document",
         "plimsoll-shard verify kjv                        checks every byte of every shard"};
    command.declare = [&o](OptionSet& options) { declare(options, o); };
    command.validate = [&o] { validate(o); };
    command.run = [&o](const Invocation&)
    {
        ShardRun run;
        run.corpus = o.corpus;
        run.out = o.out;
        run.json = o.json;
        return run_shard(run);
    };
    return command;
}

Command merge_command(Options& o)
{
    Command command;
    command.name = "merge";
    command.summary = "the parts of --num-shards tasks as one run over everything would have written them";
    command.run_files = RunFiles::refused;
    command.positionals = {{"PART", "directory of a part, or a pattern ('parts/part_*', in quotes or not)", 1, -1}};
    command.declare = [&o](OptionSet& options)
    {
        options.add_text("", "out", o.merge.out, "directory of the shards; appears when all are complete")
            .value_name("DIR")
            .required();
        options.add_flag("", "force", o.merge.force, "replace the token shards in OUT");
        options.add_flag("", "json", o.merge.json, "report as JSON on stdout");
    };
    command.run = [&o](const Invocation& invocation)
    {
        o.merge.parts = invocation.positionals;
        return run_merge(o.merge);
    };
    return command;
}

Command inspect_command(Options& o)
{
    Command command;
    command.name = "inspect";
    command.summary = "shows the manifest of a directory, the header of a shard, or one document";
    command.run_files = RunFiles::refused;
    command.positionals = {{"PATH", "directory of shards, a shard, or files of another tool", 1, 1}};
    command.declare = [&o](OptionSet& options)
    {
        options.add_count("", "document", o.document_number, "print the text of this document; masked tokens in [[ ]]")
            .value_name("N")
            .shown_default("none")
            .range(-1);
        options.add_text("", "tokenizer", o.inspect_tokenizer, "of the shards").shown_default("by the name in them");
        options.add_flag("", "json", o.json, "as JSON");
    };
    command.run = [&o](const Invocation& invocation)
    {
        const std::string& path = invocation.positionals[0];
        print(o.document_number >= 0 ? document_text(path, o.document_number, o.inspect_tokenizer)
                                     : inspect_text(path, o.json ? OutputKind::json : OutputKind::text));
        return ExitCode::done;
    };
    return command;
}

Command verify_command(Options& o)
{
    Command command;
    command.name = "verify";
    command.summary = "checks every byte of the shards of a directory against its manifest; of a shard alone its data";
    command.run_files = RunFiles::refused;
    command.positionals = {{"PATH", "directory of shards, a shard, or files of another tool", 1, -1}};
    command.declare = [&o](OptionSet& options) { options.add_flag("", "json", o.json, "as JSON"); };
    command.run = [&o](const Invocation& invocation)
    {
        print(verify_text(invocation.positionals, o.json ? OutputKind::json : OutputKind::text));
        return ExitCode::done;
    };
    return command;
}

}  // namespace

int main(int argc, char** argv)
{
    Options o;
    ToolSpec tool;
    tool.name = "plimsoll-shard";
    tool.summary = "turns text into token shards";
    tool.commands = {shard_command(o), merge_command(o), inspect_command(o), verify_command(o)};
    tool.commands.push_back(export_command());
    tool.commands.push_back(import_command());
    tool.commands.push_back(train_bpe_command());
    tool.commands.push_back(dedup_command());
    tool.commands.push_back(split_command());
    tool.commands.push_back(decode_command());
    return run_tool(argc, argv, tool);
}
