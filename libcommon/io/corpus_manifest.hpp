#pragma once
/// manifest.json of a directory of token shards: what is in it, by which options it was made. docs/token_shards.md.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/token_shard.hpp"

namespace plimsoll
{

struct CorpusShard
{
    std::string set;      ///< "train" or "validation"
    TokenShardInfo info;  ///< path relative to the directory
};

/// One of several tasks that share a corpus.
struct CorpusPart
{
    std::int64_t index = 0;
    std::int64_t num = 1;
    std::string inputs_sha256;  ///< over paths and sizes of all inputs
};

struct CorpusManifest
{
    std::string tokenizer;
    std::string fingerprint;
    std::int64_t vocab = 0;
    std::uint32_t eod = 0;
    Dtype dtype = Dtype::u16;
    std::vector<std::string> required_features;
    std::vector<std::pair<std::string, std::string>> options;  ///< those that decide the output, in a fixed order
    std::vector<std::pair<std::string, std::int64_t>> input;   ///< counts of what was read
    std::vector<CorpusShard> shards;
    std::optional<CorpusPart> part;  ///< of a whole corpus none

    /// sha256 over `options`.
    std::string options_hash() const;
};

constexpr const char* corpus_manifest_name = "manifest.json";

std::string manifest_text(const CorpusManifest& manifest);
/// A shard's row of the manifest, and back; tokenizer and dtype are the manifest's.
std::string corpus_shard_json(const CorpusShard& shard);
CorpusShard parse_corpus_shard(const std::string& json, const CorpusManifest& manifest);

/// @throws IoError, FormatError "x/manifest.json: ..." when it is none, of another version, or needs an unknown feature
CorpusManifest read_corpus_manifest(const std::string& directory);

}  // namespace plimsoll
