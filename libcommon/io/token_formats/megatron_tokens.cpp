#include "io/token_formats/megatron_tokens.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "io/file.hpp"
#include "io/token_formats/megatron.hpp"
#include "io/token_shard_format.hpp"

namespace plimsoll
{

namespace
{

constexpr const char* megatron_scheme = "megatron:";

class MegatronTokens : public TokenFile
{
  public:
    MegatronTokens(const std::string& path, std::int64_t vocab)
        : reader_(path.substr(std::string(megatron_scheme).size()))
    {
        VALIDATE(vocab > 0, ConfigError, "'{}' does not say its vocabulary. set vocab in its section", path);
        VALIDATE(reader_.num_tokens() > 0, FormatError, "{}: holds no token", path);
        info_.path = path;
        info_.dtype = shard_format::token_dtype(vocab);
        info_.num_tokens = reader_.num_tokens();
        info_.num_documents = reader_.num_documents();
        info_.vocab = vocab;
        info_.tokenizer = "unknown";
        info_.file_bytes = reader_.file_bytes();
        info_.tokens_crc = sampled_crc();
    }

    const TokenShardInfo& info() const override { return info_; }

    void read(std::int64_t begin, std::int64_t num, std::int64_t* tokens) const override
    {
        reader_.read(begin, num, tokens);
        for (std::int64_t i = 0; i < num; ++i)
        {
            VALIDATE(tokens[i] < info_.vocab, FormatError,
                     "{}.bin: token {} is {}, not below the vocabulary of {} (vocab of its section, or the model's)",
                     reader_.prefix(), begin + i, tokens[i], info_.vocab);
        }
    }

    void read_loss_mask(std::int64_t, std::int64_t num, std::uint8_t* mask) const override
    {
        std::fill(mask, mask + num, std::uint8_t{1});
    }

    void read_document_ends(std::int64_t first, std::int64_t num, std::uint64_t* ends) const override
    {
        reader_.read_document_ends(first, num, ends);
    }

  private:
    std::uint32_t sampled_crc() const
    {
        constexpr std::int64_t stretches = 16;
        constexpr std::int64_t length = 1024;
        std::vector<std::int64_t> tokens(static_cast<std::size_t>(std::min(stretches * length, info_.num_tokens)));
        if (static_cast<std::int64_t>(tokens.size()) == info_.num_tokens) { read(0, info_.num_tokens, tokens.data()); }
        else
        {
            const std::int64_t last = info_.num_tokens - length;
            for (std::int64_t i = 0; i < stretches; ++i)
            {
                const std::int64_t begin = last / (stretches - 1) * i;
                read(i + 1 == stretches ? last : begin, length, tokens.data() + i * length);
            }
        }
        return crc32c(tokens.data(), static_cast<std::int64_t>(tokens.size() * sizeof(std::int64_t)));
    }

    MegatronReader reader_;
    TokenShardInfo info_;
};

}  // namespace

bool is_megatron_path(const std::string& path) { return path.rfind(megatron_scheme, 0) == 0; }

std::shared_ptr<const TokenFile> open_megatron(const std::string& path, std::int64_t vocab)
{
    return std::make_shared<MegatronTokens>(path, vocab);
}

}  // namespace plimsoll
