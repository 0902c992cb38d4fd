#pragma once
/// Token shards as a reader and a writer of documents: the native pair of the formats in this folder.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/corpus_manifest.hpp"
#include "io/token_formats/token_documents.hpp"
#include "io/token_shard.hpp"
#include "io/tokenizer/tokenizer.hpp"

namespace plimsoll
{

/// What shards say of their tokenizer, without the tokenizer.
struct TokenizerIdentity
{
    std::string name;
    std::string fingerprint;
    std::int64_t vocab = 0;
    std::uint32_t eod = 0;
};

TokenizerIdentity identity_of(const Tokenizer& tokenizer, std::uint32_t eod);
TokenizerIdentity identity_of(const CorpusManifest& manifest);
/// Of tokens of which only vocabulary and end-of-document id are known.
TokenizerIdentity unknown_tokenizer(std::int64_t vocab, std::uint32_t eod);

/// Removes what a killed run left in a directory that CorpusOutput has for itself.
void clear_partial(const std::string& directory);

/// Paths of the shards of a directory in the order of its manifest; `set` "train", "validation" or empty for all.
std::vector<std::string> shard_paths_of(const CorpusManifest& manifest, const std::string& directory,
                                        const std::string& set = {});

/// The documents of shards, one shard open at a time. Memory: 16 bytes for each document of a shard.
class ShardDocuments : public DocumentReader
{
  public:
    explicit ShardDocuments(std::vector<std::string> paths);

    bool next(TokenDocument& document) override;
    bool has_loss_mask() const override { return has_loss_mask_; }
    std::int64_t total_bytes() const override { return total_bytes_; }
    std::int64_t bytes_read() const override { return bytes_read_; }
    std::int64_t num_documents() const { return num_documents_; }

  private:
    void open_shard();

    std::vector<std::string> paths_;
    bool has_loss_mask_ = false;
    std::int64_t total_bytes_ = 0;
    std::int64_t bytes_read_ = 0;
    std::int64_t num_documents_ = 0;
    std::size_t shard_ = 0;
    std::unique_ptr<TokenShardReader> reader_;
    std::vector<std::uint64_t> ends_;
    std::vector<std::uint64_t> text_bytes_;
    std::size_t document_ = 0;
    std::vector<std::int64_t> wide_;
};

/// Shards of one set, DIRECTORY/PREFIXshard_00000.h5 and so on: each ends before the document that would take it above
/// `shard_tokens`, as plimsoll-shard cuts them. Empty documents are an error. The directory is one that nobody looks at
/// yet (CorpusOutput).
class ShardSetWriter : public DocumentWriter
{
  public:
    ShardSetWriter(std::string set, std::string directory, std::string prefix, TokenizerIdentity tokenizer,
                   std::int64_t shard_tokens, bool with_loss_mask);

    void add(const TokenDocument& document) override;
    void finish() override;

    /// Rows for the manifest, after finish().
    const std::vector<CorpusShard>& shards() const { return shards_; }
    std::int64_t num_documents() const { return num_documents_; }
    std::int64_t num_tokens() const { return num_tokens_; }

  private:
    void finish_shard();

    std::string set_;
    std::string directory_;
    std::string prefix_;
    TokenizerIdentity tokenizer_;
    std::int64_t shard_tokens_;
    bool with_loss_mask_;
    std::unique_ptr<TokenShardWriter> writer_;
    std::string relative_;
    std::vector<CorpusShard> shards_;
    std::vector<std::uint8_t> all_;
    std::int64_t num_documents_ = 0;
    std::int64_t num_tokens_ = 0;
};

}  // namespace plimsoll
