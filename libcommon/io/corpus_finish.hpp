#pragma once
/// What a run and a merge say at their ends, the same.

#include <vector>

#include "io/corpus.hpp"

namespace plimsoll
{

/// @throws UsageError when there are no documents, or the validation share chose none or all of them
void check_corpus_sets(const CorpusSet& train, const CorpusSet& validation, const CorpusReport& report, double share);

/// Counts and shards into report.manifest.
void fill_corpus_manifest(CorpusReport& report, const std::vector<CorpusShard>& train,
                          const std::vector<CorpusShard>& validation);

}  // namespace plimsoll
