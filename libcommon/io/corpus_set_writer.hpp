#pragma once
/// The shards of one set ("train", "validation"): where one ends and the next begins depends on the documents alone.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/corpus.hpp"

namespace plimsoll
{

/// What all shards of a corpus say of its tokenizer.
struct ShardIdentity
{
    std::int64_t vocab = 0;
    std::string tokenizer;
    std::string fingerprint;
    bool with_loss_mask = false;
};

class CorpusSetWriter
{
  public:
    /// `directory` empty: only counts. @pre shard_tokens > 0
    CorpusSetWriter(std::string set, std::string directory, std::int64_t shard_tokens, ShardIdentity identity,
                    SpillFiles spill);

    /// One document; `mask` only where the identity has one.
    void add(const std::uint32_t* ids, const std::uint8_t* mask, std::int64_t num, std::int64_t text_bytes);
    void finish();

    const CorpusSet& counts() const { return counts_; }
    const std::vector<CorpusShard>& shards() const { return shards_; }

    /// For the journal: what was counted, how far the shard in work has come, and how many shards are finished.
    struct State
    {
        CorpusSet counts;
        std::int64_t finished = 0;
        TokenShardProgress open;  ///< of no tokens: none is in work
    };
    State persist(TokenShardWriter::Durable durable);
    /// Goes on from a state; `shards`: the finished ones. @throws FormatError when files are not what they were
    void resume(const State& state, std::vector<CorpusShard> shards);
    /// The kept files of finished shards are needed until a state without them is durable.
    void remove_finished_spill_files();
    bool has_finished_spill_files() const { return !finished_spill_.empty(); }

  private:
    std::string path_of(std::int64_t shard);
    void start();

    std::string set_;
    std::string directory_;
    std::string prefix_;
    std::int64_t shard_tokens_;
    ShardIdentity identity_;
    SpillFiles spill_;
    std::unique_ptr<TokenShardWriter> writer_;
    std::string relative_;
    std::int64_t in_shard_ = 0;
    CorpusSet counts_;
    std::vector<CorpusShard> shards_;
    std::vector<std::string> finished_spill_;
};

}  // namespace plimsoll
