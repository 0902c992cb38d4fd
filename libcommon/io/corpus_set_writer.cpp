#include "io/corpus_set_writer.hpp"

#include <utility>

#include "base/error.hpp"
#include "io/file.hpp"

namespace plimsoll
{

CorpusSetWriter::CorpusSetWriter(std::string set, std::string directory, std::int64_t shard_tokens,
                                 ShardIdentity identity, SpillFiles spill)
    : set_(std::move(set)),
      directory_(std::move(directory)),
      prefix_(set_ == "train" ? "" : set_ + "/"),
      shard_tokens_(shard_tokens),
      identity_(std::move(identity)),
      spill_(spill)
{
}

void CorpusSetWriter::add(const std::uint32_t* ids, const std::uint8_t* mask, std::int64_t num, std::int64_t text_bytes)
{
    if (in_shard_ > 0 && in_shard_ + num > shard_tokens_) { finish(); }
    if (in_shard_ == 0) { start(); }
    if (writer_) { writer_->add_document(ids, num, text_bytes, mask); }
    in_shard_ += num;
    ++counts_.documents;
    counts_.tokens += num;
    counts_.text_bytes += text_bytes;
}

std::string CorpusSetWriter::path_of(std::int64_t shard)
{
    relative_ = fmt::format("{}shard_{:05}.h5", prefix_, shard);
    return directory_ + "/" + relative_;
}

void CorpusSetWriter::start()
{
    const std::string path = path_of(counts_.shards++);
    if (directory_.empty()) { return; }
    if (!prefix_.empty()) { make_directories(directory_ + "/" + prefix_); }
    writer_ = std::make_unique<TokenShardWriter>(path, identity_.vocab, identity_.tokenizer, identity_.fingerprint,
                                                 identity_.with_loss_mask, spill_);
}

void CorpusSetWriter::finish()
{
    in_shard_ = 0;
    if (!writer_) { return; }
    CorpusShard shard;
    shard.set = set_;
    shard.info = writer_->finish();
    if (spill_ == SpillFiles::kept) { finished_spill_.push_back(shard.info.path); }
    shard.info.path = relative_;
    counts_.file_bytes += shard.info.file_bytes;
    shards_.push_back(std::move(shard));
    writer_.reset();
}

CorpusSetWriter::State CorpusSetWriter::persist(TokenShardWriter::Durable durable)
{
    State state;
    state.counts = counts_;
    state.finished = static_cast<std::int64_t>(shards_.size());
    if (writer_) { state.open = writer_->persist(durable); }
    return state;
}

void CorpusSetWriter::resume(const State& state, std::vector<CorpusShard> shards)
{
    EXPECT(static_cast<std::int64_t>(shards.size()) == state.finished);
    counts_ = state.counts;
    shards_ = std::move(shards);
    in_shard_ = state.open.num_tokens;
    writer_.reset();
    if (in_shard_ == 0) { return; }
    writer_ = std::make_unique<TokenShardWriter>(path_of(counts_.shards - 1), identity_.vocab, identity_.tokenizer,
                                                 identity_.fingerprint, identity_.with_loss_mask, state.open);
}

void CorpusSetWriter::remove_finished_spill_files()
{
    for (const std::string& path : finished_spill_) { TokenShardWriter::remove_spill_files(path); }
    finished_spill_.clear();
}

}  // namespace plimsoll
