#pragma once
/// What plimsoll-shard prints.

#include <string>

#include "io/corpus.hpp"

namespace plimsoll
{

std::string tokenizer_line(const std::string& name, std::int64_t vocab, const std::string& fingerprint);

/// The rows behind a run; `out` as the user wrote it, empty in a dry run.
std::string corpus_report_text(const CorpusReport& report, const std::string& out, CorpusOptions::Mode mode);
std::string corpus_report_json(const CorpusReport& report, const std::string& out, CorpusOptions::Mode mode);

}  // namespace plimsoll
