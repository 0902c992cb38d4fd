#include <algorithm>
#include <map>
#include <memory>
#include <mutex>

#include "base/error.hpp"
#include "io/corpus_manifest.hpp"
#include "io/file.hpp"
#include "io/token_formats/megatron_tokens.hpp"
#include "io/token_shard.hpp"

namespace plimsoll
{

namespace
{

std::string described(const TokenShardInfo& info)
{
    return fmt::format("'{}' has tokenizer '{}' (vocabulary {}, sha256 {})", info.path, info.tokenizer, info.vocab,
                       info.fingerprint.substr(0, 12));
}

using ManifestRows = std::map<std::string, TokenShardInfo>;

/// Rows of directory/manifest.json by the full path of their shard; none where there is no manifest that can be read: the shards'
/// own headers count then.
ManifestRows manifest_rows(const std::string& directory)
{
    ManifestRows rows;
    if (!path_exists(directory + "/" + corpus_manifest_name)) { return rows; }
    try
    {
        for (const CorpusShard& shard : read_corpus_manifest(directory).shards)
        {
            TokenShardInfo info = shard.info;
            info.path = directory + "/" + shard.info.path;
            rows[info.path] = info;
        }
    }
    catch (const FormatError&)
    {
        rows.clear();
    }
    return rows;
}

/// What manifests say of shards; each manifest is read once.
class ManifestLookup
{
  public:
    /// Null: open the shard.
    const TokenShardInfo* find(const std::string& path)
    {
        const std::string directory = parent_of(path);
        for (const std::string& place : {directory, parent_of(directory)})
        {
            const auto known = rows_.find(place);
            const ManifestRows& rows = known != rows_.end() ? known->second : rows_[place] = manifest_rows(place);
            const auto row = rows.find(path);
            if (row != rows.end() && file_size(path) == row->second.file_bytes) { return &row->second; }
        }
        return nullptr;
    }

  private:
    std::map<std::string, ManifestRows> rows_;
};

std::shared_ptr<const TokenFile> open_token_file(const std::string& path, std::int64_t vocab)
{
    if (is_megatron_path(path)) { return open_megatron(path, vocab); }
    return std::make_shared<TokenShardReader>(path);
}

void check_described(const TokenShardInfo& said, const TokenShardInfo& found)
{
    VALIDATE(said.num_tokens == found.num_tokens && said.tokens_crc == found.tokens_crc && said.vocab == found.vocab &&
                 said.fingerprint == found.fingerprint && said.has_loss_mask == found.has_loss_mask &&
                 said.loss_mask_crc == found.loss_mask_crc,
             FormatError,
             "{}: is not the shard that the run began with ({} tokens with crc32c {:08x}; its manifest.json, or itself at the start, said "
             "{} with {:08x}). restore it, or make the shards again",
             found.path, found.num_tokens, found.tokens_crc, said.num_tokens, said.tokens_crc);
}

}  // namespace

/// Shards that are open, the longest unused closed first.
struct TokenSource::Open
{
    struct Slot
    {
        std::shared_ptr<const TokenFile> file;
        std::uint64_t used = 0;
    };

    std::int64_t vocab = 0;
    std::mutex mutex;
    std::vector<Slot> slots;
    std::size_t num_open = 0;
    std::uint64_t clock = 0;

    std::shared_ptr<const TokenFile> get(std::size_t shard, const TokenShardInfo& info)
    {
        const std::lock_guard<std::mutex> lock(mutex);
        Slot& slot = slots[shard];
        slot.used = ++clock;
        if (slot.file) { return slot.file; }
        std::shared_ptr<const TokenFile> file = open_token_file(info.path, vocab);
        check_described(info, file->info());
        put(slot, file);
        return file;
    }

    void put(Slot& slot, std::shared_ptr<const TokenFile> file)
    {
        if (num_open == max_open)
        {
            Slot* oldest = nullptr;
            for (Slot& other : slots)
            {
                if (other.file && (oldest == nullptr || other.used < oldest->used)) { oldest = &other; }
            }
            oldest->file.reset();
            --num_open;
        }
        slot.file = std::move(file);
        ++num_open;
    }
};

TokenSource::TokenSource(const std::vector<std::string>& paths, std::int64_t vocab)
    : open_(std::make_unique<Open>())
{
    VALIDATE(!paths.empty(), ConfigError, "no token shards. name them with shards = in [data] of the run file");
    open_->vocab = vocab;
    open_->slots.resize(paths.size());
    ManifestLookup manifests;
    std::int64_t num_documents = 0;
    for (std::size_t i = 0; i < paths.size(); ++i)
    {
        const TokenShardInfo* row = is_megatron_path(paths[i]) ? nullptr : manifests.find(paths[i]);
        TokenShardInfo info;
        if (row != nullptr) { info = *row; }
        else
        {
            std::shared_ptr<const TokenFile> file = open_token_file(paths[i], vocab);
            info = file->info();
            open_->put(open_->slots[i], std::move(file));
        }
        if (!infos_.empty())
        {
            const TokenShardInfo& first = infos_.front();
            VALIDATE(info.fingerprint == first.fingerprint && info.vocab == first.vocab &&
                         info.tokenizer == first.tokenizer,
                     FormatError, "shards of two tokenizers cannot be mixed: {}, {}", described(first),
                     described(info));
        }
        starts_.push_back(num_tokens_);
        first_documents_.push_back(num_documents);
        num_documents += info.num_documents;
        num_tokens_ += info.num_tokens;
        text_bytes_ += info.text_bytes;
        infos_.push_back(std::move(info));
    }
}

TokenSource::~TokenSource() = default;
TokenSource::TokenSource(TokenSource&&) noexcept = default;
TokenSource& TokenSource::operator=(TokenSource&&) noexcept = default;

bool TokenSource::has_loss_mask() const
{
    return std::any_of(infos_.begin(), infos_.end(), [](const TokenShardInfo& info) { return info.has_loss_mask; });
}

std::size_t TokenSource::num_open() const
{
    const std::lock_guard<std::mutex> lock(open_->mutex);
    return open_->num_open;
}

std::size_t TokenSource::shard_of(std::int64_t token) const
{
    return static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), token) - starts_.begin() - 1);
}

std::vector<DocumentPiece> TokenSource::pieces(std::int64_t begin, std::int64_t num) const
{
    EXPECT(begin >= 0 && num >= 0 && begin + num <= num_tokens_);
    std::vector<DocumentPiece> all;
    for (std::size_t shard = shard_of(begin); num > 0; ++shard)
    {
        const std::int64_t local = begin - starts_[shard];
        const std::int64_t taken = std::min(num, infos_[shard].num_tokens - local);
        for (DocumentPiece& piece : document_pieces(*open_->get(shard, infos_[shard]), local, taken))
        {
            piece.document += first_documents_[shard];
            piece.begin += starts_[shard];
            piece.end += starts_[shard];
            all.push_back(piece);
        }
        begin += taken;
        num -= taken;
    }
    return all;
}

void TokenSource::read(std::int64_t begin, std::int64_t num, std::int64_t* tokens, std::uint8_t* loss_mask) const
{
    EXPECT(begin >= 0 && num >= 0 && begin + num <= num_tokens_);
    std::size_t shard = shard_of(begin);
    while (num > 0)
    {
        const std::int64_t local = begin - starts_[shard];
        const std::int64_t taken = std::min(num, infos_[shard].num_tokens - local);
        const std::shared_ptr<const TokenFile> file = open_->get(shard, infos_[shard]);
        file->read(local, taken, tokens);
        tokens += taken;
        if (loss_mask != nullptr)
        {
            file->read_loss_mask(local, taken, loss_mask);
            loss_mask += taken;
        }
        begin += taken;
        num -= taken;
        ++shard;
    }
}

}  // namespace plimsoll
