#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/units.hpp"
#include "documents.hpp"
#include "io/corpus_manifest.hpp"
#include "io/file.hpp"
#include "io/token_formats/shard_set.hpp"
#include "io/token_formats/token_files.hpp"

namespace plimsoll
{

namespace
{

struct DecodeState
{
    std::string tokenizer;
    bool json = false;
};

/// A document's text; with a line feed at its end, so that the next one starts on a line of its own.
void print_decoded(std::string text, bool as_json)
{
    if (as_json)
    {
        const nlohmann::ordered_json row = {{"text", text}};
        text = row.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
    }
    if (text.empty() || text.back() != '\n') { text += '\n'; }
    std::fwrite(text.data(), 1, text.size(), stdout);
}

void decode_documents(DocumentReader& documents, const Tokenizer& tokenizer, bool as_json)
{
    for (TokenDocument document; documents.next(document);)
    {
        check_ids(document.ids, tokenizer.vocab(), 0);
        print_decoded(tokenizer.decode(document.ids.data(), static_cast<std::int64_t>(document.ids.size())), as_json);
    }
}

void decode_shards(const std::string& path, const DecodeState& o)
{
    const bool directory = is_directory(path);
    const TokenizerIdentity identity = directory ? identity_of(read_corpus_manifest(path)) : TokenizerIdentity();
    const TokenShardInfo info = directory ? TokenShardInfo() : TokenShardReader(path).info();
    const auto tokenizer = tokenizer_of_shards(o.tokenizer, directory ? identity.name : info.tokenizer,
                                               directory ? identity.fingerprint : info.fingerprint, path);
    ShardDocuments documents(directory ? shard_paths_of(read_corpus_manifest(path), path)
                                       : std::vector<std::string>{path});
    decode_documents(documents, *tokenizer, o.json);
}

/// Ids of standard input, one document a line.
void decode_standard_input(const DecodeState& o)
{
    VALIDATE(!o.tokenizer.empty(), UsageError, "--tokenizer is missing (ids on standard input are of which one?)");
    const auto tokenizer = make_tokenizer(o.tokenizer);
    std::string line;
    for (std::int64_t number = 1; std::getline(std::cin, line); ++number)
    {
        std::vector<std::uint32_t> ids;
        for (std::size_t at = line.find_first_not_of(" \t,[]\r"); at != std::string::npos;)
        {
            const std::size_t end = std::min(line.find_first_of(" \t,[]\r", at), line.size());
            const std::string word = line.substr(at, end - at);
            const bool digits = word.size() < 11 && word.find_first_not_of("0123456789") == std::string::npos;
            const std::int64_t id = digits ? std::stoll(word) : -1;
            VALIDATE(id >= 0 && id < tokenizer->vocab(), FormatError, "line {}: '{}' is no id below {}", number, word,
                     tokenizer->vocab());
            ids.push_back(static_cast<std::uint32_t>(id));
            at = line.find_first_not_of(" \t,[]\r", end);
        }
        print_decoded(tokenizer->decode(ids.data(), static_cast<std::int64_t>(ids.size())), o.json);
    }
}

}  // namespace

std::unique_ptr<Tokenizer> tokenizer_of_shards(const std::string& kind, const std::string& name,
                                               const std::string& fingerprint, const std::string& path)
{
    VALIDATE(!kind.empty() || name == "bytes" || path_exists(name), UsageError,
             "'{}' is of tokenizer '{}', a file of which only the name is known. give --tokenizer FILE", path, name);
    auto tokenizer = make_tokenizer(kind.empty() ? name : kind);
    VALIDATE(tokenizer->fingerprint() == fingerprint, FormatError, "{}: its tokenizer '{}' (sha256 {}) is not {} ({})",
             path, name, fingerprint.substr(0, 12), kind.empty() ? "the one of this version" : "'" + kind + "'",
             tokenizer->fingerprint().substr(0, 12));
    return tokenizer;
}

Command decode_command()
{
    const auto state = std::make_shared<DecodeState>();
    Command command;
    command.name = "decode";
    command.summary = "prints the text of all documents of shards, or of ids on standard input, one document a line";
    command.run_files = RunFiles::refused;
    command.positionals = {
        {"PATH", "directories of shards, shards or files of other tools; none: standard input", 0, -1}};
    command.examples = {"plimsoll-shard decode kjv/shard_00000.h5 | head",
                        "echo 72 105 256 | plimsoll-shard decode --tokenizer bytes"};
    command.declare = [state](OptionSet& options)
    {
        options.add_text("", "tokenizer", state->tokenizer, "that the ids are of").shown_default("the shards'");
        options.add_flag("", "json", state->json, "each document as {\"text\": ...} on a line");
    };
    command.run = [state](const Invocation& invocation)
    {
        if (invocation.positionals.empty()) { decode_standard_input(*state); }
        for (const std::string& path : invocation.positionals)
        {
            const auto format = token_format_of(path);
            if (!format)
            {
                decode_shards(path, *state);
                continue;
            }
            VALIDATE(!state->tokenizer.empty(), UsageError,
                     "--tokenizer is missing ('{}' does not say which one it is of)", path);
            const auto tokenizer = make_tokenizer(state->tokenizer);
            TokenReadOptions options;
            options.eod = tokenizer->eod();
            decode_documents(*open_token_files(*format, {path}, options), *tokenizer, state->json);
        }
        return ExitCode::done;
    };
    return command;
}

}  // namespace plimsoll
