#pragma once
/// Token shards without the documents that others repeat: what `plimsoll-shard dedup` does.

#include <cstdint>
#include <functional>
#include <string>

#include "io/corpus_manifest.hpp"
#include "io/corpus_output.hpp"
#include "io/dedup/minhash.hpp"

namespace plimsoll
{

struct DedupOptions
{
    std::string directory;  ///< of token shards
    std::string out;
    enum class Method
    {
        exact,   ///< the same ids, by a hash of 128 bits
        minhash  ///< alike by n-grams
    };
    Method method = Method::exact;
    MinhashParameters minhash;
    enum class Unit
    {
        words,  ///< of the decoded text: runs of letters, marks and numbers
        tokens
    };
    Unit unit = Unit::words;
    std::string tokenizer;  ///< that decodes; empty: by the name in the manifest
    std::int64_t memory_limit = 1ll << 30;
    int threads = 1;
    std::int64_t shard_tokens = 64'000'000;
    CorpusOutput::Existing existing = CorpusOutput::Existing::refuse;
};

struct DedupReport
{
    std::int64_t documents = 0;  ///< read
    std::int64_t duplicates = 0;
    std::int64_t clusters = 0;  ///< with two documents or more
    std::int64_t tokens = 0;    ///< read
    std::int64_t duplicate_tokens = 0;
    std::int64_t key_files = 0;  ///< 1: all keys were looked at at once
    CorpusManifest manifest;
};

/// Called with the bytes of tokens that are read in all and that were; may throw to stop.
using DedupObserver = std::function<void(std::int64_t total, std::int64_t done)>;

/// Of each cluster (documents that share a key with one another, by any number of steps) the first in the order of the
/// manifest stays: training documents before held-out ones. OUT/duplicates.jsonl says which document repeated which; both
/// count from 0 over the shards of DIR. The result depends on the shards and the options alone, not on threads or memory.
/// Memory: `memory_limit`, and a batch of documents for each thread (4 MiB or the longest document).
/// @throws ConfigError for a limit below 8 bytes for each document and what KeyGroups needs, UsageError, FormatError, IoError
DedupReport dedup_shards(const DedupOptions& options, const DedupObserver& observer = {});

}  // namespace plimsoll
