#include <algorithm>

#include "base/error.hpp"
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

}  // namespace

TokenSource::TokenSource(const std::vector<std::string>& paths)
{
    VALIDATE(!paths.empty(), ConfigError, "no token shards. name them with shards = in [data] of the run file");
    readers_.reserve(paths.size());
    for (const std::string& path : paths)
    {
        readers_.emplace_back(path);
        const TokenShardInfo& info = readers_.back().info();
        if (!infos_.empty())
        {
            const TokenShardInfo& first = infos_.front();
            VALIDATE(info.fingerprint == first.fingerprint && info.vocab == first.vocab &&
                         info.tokenizer == first.tokenizer,
                     FormatError, "shards of two tokenizers cannot be mixed: {}, {}", described(first),
                     described(info));
        }
        infos_.push_back(info);
        starts_.push_back(num_tokens_);
        num_tokens_ += info.num_tokens;
        text_bytes_ += info.text_bytes;
    }
}

bool TokenSource::has_loss_mask() const
{
    return std::any_of(infos_.begin(), infos_.end(), [](const TokenShardInfo& info) { return info.has_loss_mask; });
}

void TokenSource::read(std::int64_t begin, std::int64_t num, std::int64_t* tokens, std::uint8_t* loss_mask) const
{
    EXPECT(begin >= 0 && num >= 0 && begin + num <= num_tokens_);
    auto shard =
        static_cast<std::size_t>(std::upper_bound(starts_.begin(), starts_.end(), begin) - starts_.begin() - 1);
    while (num > 0)
    {
        const std::int64_t local = begin - starts_[shard];
        const std::int64_t taken = std::min(num, infos_[shard].num_tokens - local);
        readers_[shard].read(local, taken, tokens);
        tokens += taken;
        if (loss_mask != nullptr)
        {
            readers_[shard].read_loss_mask(local, taken, loss_mask);
            loss_mask += taken;
        }
        begin += taken;
        num -= taken;
        ++shard;
    }
}

}  // namespace plimsoll
