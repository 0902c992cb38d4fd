#pragma once
/// Text files to a directory of token shards: what plimsoll-shard does.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "io/corpus_manifest.hpp"
#include "io/text_input.hpp"

namespace plimsoll
{

struct CorpusOptions
{
    std::vector<std::string> inputs;  ///< files and glob patterns
    TextInputOptions text;
    std::string tokenizer = "bytes";
    std::string out;                         ///< directory
    std::int64_t shard_tokens = 64'000'000;  ///< a shard ends before the document that would exceed it
    double validation = 0;                   ///< share of documents, 0 to 1, chosen by a keyed hash of their text
    std::uint64_t seed = 1;                  ///< of that choice

    enum class Existing
    {
        refuse,
        replace
    };
    Existing existing = Existing::refuse;  ///< replace: only a directory that holds token shards and nothing else
    enum class Mode
    {
        write,
        dry_run
    };
    Mode mode = Mode::write;  ///< dry_run: reads and counts everything, writes nothing
};

struct CorpusSet
{
    std::int64_t shards = 0;
    std::int64_t documents = 0;
    std::int64_t tokens = 0;
    std::int64_t text_bytes = 0;
    std::int64_t file_bytes = 0;  ///< 0 in a dry run
};

struct CorpusReport
{
    std::int64_t input_files = 0;
    TextInputCounts counts;
    std::int64_t documents = 0;       ///< found, empty ones included
    std::int64_t empty = 0;           ///< counted, not written
    bool replaced_bad_records = false;  ///< else they were skipped
    std::int64_t longest_tokens = 0;  ///< of one document, with its end
    CorpusSet train;
    CorpusSet validation;
    CorpusManifest manifest;  ///< without shards in a dry run
    double seconds = 0;
    double read_seconds = 0;
    double parse_seconds = 0;
    double tokenize_seconds = 0;
    double write_seconds = 0;
};

struct CorpusProgress
{
    std::int64_t files = 0;
    std::int64_t total_bytes = 0;
    std::int64_t bytes = 0;  ///< read so far
};

/// Called when the input is known and then every 64 KiB. May throw to stop: nothing of the output stays then.
using CorpusObserver = std::function<void(const CorpusProgress&)>;

/// Writes OUT/shard_00000.h5 ..., OUT/validation/shard_00000.h5 ..., OUT/bad_records.jsonl (if there are any) and
/// OUT/manifest.json. All appears at once: it is made in a hidden directory beside OUT (`.NAME.partial`), which takes
/// the name OUT at the very end; a killed run leaves at most that one, and the next run clears it. The output is a
/// function of the content of the input and the options alone.
/// @throws UsageError for existing output, a validation share that chooses no or every document, and a corpus without
/// documents; what TextInput, TokenShardWriter and make_tokenizer throw
/// Memory: docs/token_shards.md; it depends on the longest record only, not on the number of documents or shards.
CorpusReport shard_corpus(const CorpusOptions& options, const CorpusObserver& observer = {});

/// Checks a directory of token shards: sizes, counts and checksums of its manifest, every byte of every shard, and
/// that no other shard lies in it. `on_bytes` is told how many bytes were checked since its last call.
/// @throws FormatError, IoError naming the first fault
CorpusManifest verify_corpus(const std::string& directory, const std::function<void(std::int64_t)>& on_bytes = {});

}  // namespace plimsoll
