#pragma once
/// Token shards to the formats of other tools and back: what `plimsoll-shard export` and `import` do.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "io/corpus_manifest.hpp"
#include "io/corpus_output.hpp"
#include "io/token_formats/token_files.hpp"

namespace plimsoll
{

/// Told the bytes of all tokens and those that are done. May throw to stop: nothing of the output stays then.
using ConvertObserver = std::function<void(std::int64_t total, std::int64_t done)>;

struct ExportOptions
{
    std::string directory;  ///< of token shards
    TokenFormat format = TokenFormat::megatron;
    std::string out;  ///< prefix, or directory for mds; the validation set goes to OUT_validation
    std::int64_t file_tokens = 100'000'000;                   ///< of llm.c
    std::int64_t size_limit = MdsWriter::default_size_limit;  ///< of a shard of mds
    enum class LossMask
    {
        keep,  ///< refused where the format has no place for it
        drop
    };
    LossMask loss_mask = LossMask::keep;
};

struct ExportedSet
{
    std::string set;
    std::string out;
    std::int64_t documents = 0;
    std::int64_t tokens = 0;
    std::int64_t ambiguous = 0;  ///< llm.c: documents with the end-of-document id inside
};

/// Memory: the longest document and 16 bytes for each document of a shard.
/// @throws UsageError for output that exists, ConfigError for a mask that would be lost, FormatError, IoError
std::vector<ExportedSet> export_shards(const ExportOptions& options, const ConvertObserver& observer = {});

struct ImportOptions
{
    std::vector<std::string> paths;
    TokenFormat format = TokenFormat::megatron;
    std::string tokenizer;  ///< kind or file; empty: only the two below are known
    std::int64_t vocab = 0;
    std::int64_t eod = -1;
    MdsReadOptions mds;
    std::string out;  ///< directory of token shards
    std::int64_t shard_tokens = 64'000'000;
    enum class DocumentEnd
    {
        as_is,
        append  ///< where it is missing
    };
    DocumentEnd end = DocumentEnd::as_is;
    CorpusOutput::Existing existing = CorpusOutput::Existing::refuse;
};

struct ImportReport
{
    std::int64_t documents = 0;  ///< written
    std::int64_t empty = 0;      ///< no token but the end: counted, not written
    std::int64_t without_end = 0;
    std::int64_t without_label = 0;  ///< documents whose mask has no 1: counted, not written
    std::int64_t tokens = 0;
    std::int64_t shards = 0;
    std::int64_t file_bytes = 0;
    CorpusManifest manifest;
};

/// @throws ConfigError without a tokenizer or a vocabulary, UsageError for output that exists or no documents,
/// FormatError, IoError
ImportReport import_tokens(const ImportOptions& options, const ConvertObserver& observer = {});

}  // namespace plimsoll
