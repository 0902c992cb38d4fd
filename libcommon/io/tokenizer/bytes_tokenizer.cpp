#include "io/tokenizer/bytes_tokenizer.hpp"

#include "base/digest.hpp"

namespace plimsoll
{

namespace
{

class BytesEncoder final : public TokenEncoder
{
  public:
    void encode(std::string_view text, std::vector<std::uint32_t>& ids) override
    {
        ids.insert(ids.end(), reinterpret_cast<const unsigned char*>(text.data()),
                   reinterpret_cast<const unsigned char*>(text.data()) + text.size());
    }
};

class BytesTokenizer final : public Tokenizer
{
  public:
    BytesTokenizer() { eod_ = 256; }
    std::string name() const override { return "bytes"; }
    std::string description() const override { return "a byte is its own id"; }
    std::int64_t vocab() const override { return 257; }
    std::string fingerprint() const override
    {
        return sha256_hex("plimsoll tokenizer bytes, version 1: id = byte, end of document 256, vocabulary 257");
    }
    std::unique_ptr<TokenEncoder> make_encoder() const override { return std::make_unique<BytesEncoder>(); }
    std::optional<std::uint32_t> special_id(std::string_view) const override { return std::nullopt; }

    std::string decode(const std::uint32_t* ids, std::int64_t num) const override
    {
        std::string text;
        text.reserve(static_cast<std::size_t>(num));
        for (std::int64_t i = 0; i < num; ++i)
        {
            if (ids[i] < 256) { text.push_back(static_cast<char>(ids[i])); }
        }
        return text;
    }
};

}  // namespace

std::unique_ptr<Tokenizer> make_bytes_tokenizer() { return std::make_unique<BytesTokenizer>(); }

}  // namespace plimsoll
