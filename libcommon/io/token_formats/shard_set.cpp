#include "io/token_formats/shard_set.hpp"

#include <algorithm>

#include "base/digest.hpp"
#include "base/error.hpp"
#include "io/file.hpp"

namespace plimsoll
{

TokenizerIdentity identity_of(const Tokenizer& tokenizer, std::uint32_t eod)
{
    return {tokenizer.name(), tokenizer.fingerprint(), tokenizer.vocab(), eod};
}

TokenizerIdentity identity_of(const CorpusManifest& manifest)
{
    return {manifest.tokenizer, manifest.fingerprint, manifest.vocab, manifest.eod};
}

TokenizerIdentity unknown_tokenizer(std::int64_t vocab, std::uint32_t eod)
{
    return {"unknown", sha256_hex(fmt::format("unknown tokenizer, vocab {}, eod {}", vocab, eod)), vocab, eod};
}

void clear_partial(const std::string& directory)
{
    for (const std::string& name : list_directory(directory))
    {
        if (name != ".lock") { remove_tree(directory + "/" + name); }
    }
}

std::vector<std::string> shard_paths_of(const CorpusManifest& manifest, const std::string& directory,
                                        const std::string& set)
{
    std::vector<std::string> paths;
    for (const CorpusShard& shard : manifest.shards)
    {
        if (set.empty() || shard.set == set) { paths.push_back(directory + "/" + shard.info.path); }
    }
    return paths;
}

ShardDocuments::ShardDocuments(std::vector<std::string> paths) : paths_(std::move(paths))
{
    for (const std::string& path : paths_)
    {
        const TokenShardInfo info = TokenShardReader(path).info();
        has_loss_mask_ = has_loss_mask_ || info.has_loss_mask;
        total_bytes_ += info.num_tokens * dtype_bytes(info.dtype);
        num_documents_ += info.num_documents;
    }
}

void ShardDocuments::open_shard()
{
    reader_ = std::make_unique<TokenShardReader>(paths_[shard_++]);
    ends_ = reader_->document_ends();
    text_bytes_ = reader_->document_text_bytes();
    document_ = 0;
}

bool ShardDocuments::next(TokenDocument& document)
{
    while (!reader_ || document_ == ends_.size())
    {
        if (shard_ == paths_.size()) { return false; }
        open_shard();
    }
    auto begin = static_cast<std::int64_t>(document_ == 0 ? 0 : ends_[document_ - 1]);
    const auto end = static_cast<std::int64_t>(ends_[document_]);
    VALIDATE(end > begin && end <= reader_->info().num_tokens, FormatError,
             "{}: document {} ends at token {} after one that ends at {}", reader_->info().path, document_, end, begin);
    document.ids.resize(static_cast<std::size_t>(end - begin));
    document.mask.resize(has_loss_mask_ ? document.ids.size() : 0);
    if (has_loss_mask_) { reader_->read_loss_mask(begin, end - begin, document.mask.data()); }
    wide_.resize(static_cast<std::size_t>(std::min<std::int64_t>(1 << 16, end - begin)));
    auto out = document.ids.begin();
    while (begin < end)
    {
        const std::int64_t num = std::min(static_cast<std::int64_t>(wide_.size()), end - begin);
        reader_->read(begin, num, wide_.data());
        out = std::transform(wide_.begin(), wide_.begin() + num, out,
                             [](std::int64_t id) { return static_cast<std::uint32_t>(id); });
        begin += num;
    }
    document.text_bytes = static_cast<std::int64_t>(text_bytes_[document_]);
    bytes_read_ += static_cast<std::int64_t>(document.ids.size()) * dtype_bytes(reader_->info().dtype);
    ++document_;
    return true;
}

ShardSetWriter::ShardSetWriter(std::string set, std::string directory, std::string prefix, TokenizerIdentity tokenizer,
                               std::int64_t shard_tokens, bool with_loss_mask)
    : set_(std::move(set)),
      directory_(std::move(directory)),
      prefix_(std::move(prefix)),
      tokenizer_(std::move(tokenizer)),
      shard_tokens_(shard_tokens),
      with_loss_mask_(with_loss_mask)
{
    EXPECT(shard_tokens > 0);
}

void ShardSetWriter::add(const TokenDocument& document)
{
    const auto num = static_cast<std::int64_t>(document.ids.size());
    if (writer_ && writer_->num_tokens() + num > shard_tokens_) { finish_shard(); }
    if (!writer_)
    {
        relative_ = fmt::format("{}shard_{:05}.h5", prefix_, shards_.size());
        if (!prefix_.empty()) { make_directories(directory_ + "/" + prefix_); }
        writer_ = std::make_unique<TokenShardWriter>(directory_ + "/" + relative_, tokenizer_.vocab, tokenizer_.name,
                                                     tokenizer_.fingerprint, with_loss_mask_);
    }
    const std::uint8_t* mask = nullptr;
    if (with_loss_mask_)
    {
        if (document.mask.empty()) { all_.assign(document.ids.size(), 1); }
        mask = document.mask.empty() ? all_.data() : document.mask.data();
    }
    writer_->add_document(document.ids.data(), num, std::max<std::int64_t>(0, document.text_bytes), mask);
    ++num_documents_;
    num_tokens_ += num;
}

void ShardSetWriter::finish_shard()
{
    CorpusShard shard;
    shard.set = set_;
    shard.info = writer_->finish();
    shard.info.path = relative_;
    shards_.push_back(std::move(shard));
    writer_.reset();
}

void ShardSetWriter::finish()
{
    if (writer_) { finish_shard(); }
}

}  // namespace plimsoll
