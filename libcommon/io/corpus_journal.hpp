#pragma once
/// journal.jsonl in the work directory of a run: what makes it possible to go on after the process was killed at any
/// moment.
///
/// Rows, each with its CRC32C in front: `run` (what must be the same: options and inputs), `shard` (a finished one) and
/// `state` (a border of the input and all that was made of what lies before). Rows behind the last state do not count.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/corpus_set_writer.hpp"
#include "io/corpus_statistics.hpp"
#include "io/file.hpp"
#include "io/text_input_blocks.hpp"

namespace plimsoll
{

/// What a run is: another one cannot go on with its work.
struct CorpusRunIdentity
{
    std::vector<std::pair<std::string, std::string>> options;  ///< those of the manifest, and the part
    std::vector<InputFile> inputs;
};

struct CorpusRunState
{
    InputPosition position;
    CorpusCounts counts;
    LengthHistogram lengths;
    CorpusSetWriter::State train;
    CorpusSetWriter::State validation;
    std::int64_t bad_records_bytes = 0;  ///< of bad_records.jsonl
    std::uint32_t bad_records_crc = 0;
};

constexpr const char* corpus_journal_name = "journal.jsonl";

/// What an earlier run left.
struct CorpusJournalContent
{
    CorpusRunIdentity identity;
    /// States to go on from, the newest first: where a machine crashed, files may lack what the newest says.
    struct Candidate
    {
        CorpusRunState state;
        std::vector<CorpusShard> shards;
        std::int64_t journal_bytes = 0;  ///< up to the end of its row
    };
    std::vector<Candidate> candidates;
};

/// Nothing when there is no journal with a state; rows that a crash tore are passed over. `manifest` gives tokenizer and dtype
/// of the shards.
std::optional<CorpusJournalContent> read_corpus_journal(const std::string& path, const CorpusManifest& manifest);

/// @throws UsageError that names the first thing that differs; `partial` is the work directory for the message
void check_same_run(const CorpusRunIdentity& then, const CorpusRunIdentity& now, const std::string& partial);

/// Appends rows. One thread.
class CorpusJournal
{
  public:
    /// Behind the first `bytes` bytes of the file; 0 makes a new one. Writes the row of the run.
    CorpusJournal(const std::string& path, std::int64_t bytes, const CorpusRunIdentity& identity);
    void add_shard(const CorpusShard& shard);
    void add_state(const CorpusRunState& state, TokenShardWriter::Durable durable);

  private:
    void append(const std::string& json);

    File file_;
    std::int64_t bytes_ = 0;
};

}  // namespace plimsoll
