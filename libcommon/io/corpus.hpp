#pragma once
/// Text files to a directory of token shards: what plimsoll-shard does.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "io/corpus_manifest.hpp"
#include "io/corpus_statistics.hpp"
#include "io/document_filter.hpp"
#include "io/text_input.hpp"
#include "io/tokenizer/tokenizer.hpp"

namespace plimsoll
{

struct CorpusOptions
{
    std::vector<std::string> inputs;  ///< as find_input_files() takes them
    TextInputOptions text;
    DocumentFilterOptions filter;
    std::string tokenizer = "bytes";
    TokenizerOptions tokenizer_options;
    std::string out;                         ///< directory
    std::int64_t shard_tokens = 64'000'000;  ///< a shard ends before the document that would exceed it
    double validation = 0;                   ///< share of documents, 0 to 1, chosen by a keyed hash of their text
    std::uint64_t seed = 1;                  ///< of that choice
    int threads = 1;                         ///< that parse and tokenize; decides no output

    enum class Existing
    {
        refuse,
        replace
    };
    Existing existing = Existing::refuse;  ///< replace: only a directory that holds token shards and nothing else
    enum class Unfinished
    {
        go_on,
        restart
    };
    Unfinished unfinished = Unfinished::go_on;  ///< what to do with the work of a killed run
    enum class Mode
    {
        write,
        dry_run
    };
    Mode mode = Mode::write;     ///< dry_run: reads and counts everything, writes nothing
    std::int64_t part = 0;       ///< of num_parts: a contiguous stretch of the input, about equal in bytes
    std::int64_t num_parts = 0;  ///< 0: all of it. Else `out` is that part's alone, for merge_corpora()
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
    CorpusCounts counts;
    LengthHistogram lengths;            ///< of all documents written
    bool replaced_bad_records = false;  ///< else they were skipped
    SpecialInText special_in_text = SpecialInText::text;
    CorpusSet train;
    CorpusSet validation;
    CorpusManifest manifest;         ///< without shards in a dry run
    bool done_before = false;        ///< a part that was complete: nothing was done
    std::int64_t resumed_bytes = 0;  ///< of the input, done by an earlier process
    int threads = 1;
    std::int64_t cache_lookups = 0;
    std::int64_t cache_hits = 0;
    double seconds = 0;  ///< of this process, as all below; those of several threads added up
    double read_seconds = 0;
    double parse_seconds = 0;
    double tokenize_seconds = 0;
    double write_seconds = 0;
};

struct CorpusProgress
{
    std::int64_t files = 0;
    std::int64_t total_bytes = 0;
    std::int64_t bytes = 0;       ///< read so far
    std::int64_t text_bytes = 0;  ///< after decompression
    bool kept = false;            ///< what was done stays when the run ends now
};

/// Called when the input is known and then with each block. May throw to stop.
using CorpusObserver = std::function<void(const CorpusProgress&)>;

/// Writes OUT/shard_00000.h5 ..., OUT/validation/shard_00000.h5 ..., OUT/bad_records.jsonl (if there are any) and
/// OUT/manifest.json. All appears at once: it is made in a hidden directory beside OUT (`.NAME.partial`), which takes
/// the name OUT at the very end. A run that is killed or stopped leaves that one, and the same call goes on where it was, at
/// most 32 blocks before; what another run left is refused. The output is a function of the content of the input and the
/// options alone: neither threads nor interruptions show.
/// @throws UsageError for existing output, another run's unfinished work, a validation share that chooses no or every
/// document, and a corpus without documents; what BlockReader, TokenShardWriter and make_tokenizer throw
/// Memory: docs/token_shards.md; it depends on options and the longest record only.
CorpusReport shard_corpus(const CorpusOptions& options, const CorpusObserver& observer = {});

/// Directory of a part below the one that all parts share: "OUT/part_00003_of_00016".
std::string corpus_part_directory(const std::string& out, std::int64_t part, std::int64_t num_parts);

struct MergeOptions
{
    std::vector<std::string> parts;  ///< directories of token shards: of one corpus all its parts, or any in this order
    std::string out;
    CorpusOptions::Existing existing = CorpusOptions::Existing::refuse;
};

/// Writes what one run over everything would have written, to the byte. Memory: the longest document, and 16 bytes for each
/// document of one shard. `on_bytes` is told how many bytes of shards were taken, and how many there are in all.
/// @throws UsageError for parts that are missing or do not belong together
CorpusReport merge_corpora(const MergeOptions& options,
                           const std::function<void(std::int64_t done, std::int64_t total)>& on_bytes = {});

/// Checks a directory of token shards: sizes, counts and checksums of its manifest, every byte of every shard, and
/// that no other shard lies in it. `on_bytes` is told how many bytes were checked since its last call.
/// @throws FormatError, IoError naming the first fault
CorpusManifest verify_corpus(const std::string& directory, const std::function<void(std::int64_t)>& on_bytes = {});

}  // namespace plimsoll
