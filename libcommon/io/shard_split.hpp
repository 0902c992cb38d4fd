#pragma once
/// A directory of token shards as several, by the content of its documents: what `plimsoll-shard split` does.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "io/corpus_output.hpp"

namespace plimsoll
{

struct SplitPart
{
    std::string out;   ///< directory
    double share = 0;  ///< of the documents, 0 to 1
};

struct SplitOptions
{
    std::string directory;
    std::vector<SplitPart> parts;  ///< shares add up to 1
    std::uint64_t seed = 1;
    std::int64_t shard_tokens = 64'000'000;
    CorpusOutput::Existing existing = CorpusOutput::Existing::refuse;
};

struct SplitReport
{
    std::string out;
    std::int64_t documents = 0;
    std::int64_t tokens = 0;
};

/// Which part a document goes to is a hash of its ids, keyed by the seed: the same wherever it stands, and the same ids
/// go to the same part. Training documents stay training documents, held-out ones held out.
/// @throws UsageError for a part without documents and for output that exists, FormatError, IoError
std::vector<SplitReport> split_shards(const SplitOptions& options,
                                      const std::function<void(std::int64_t total, std::int64_t done)>& observer = {});

}  // namespace plimsoll
