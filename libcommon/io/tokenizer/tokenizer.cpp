#include "io/tokenizer/tokenizer.hpp"

#include "base/digest.hpp"
#include "base/error.hpp"

namespace plimsoll
{

namespace
{

/// Every byte is its own id, so that any text has an exact encoding and a decoding that gives the same bytes back.
class BytesTokenizer final : public Tokenizer
{
  public:
    std::string name() const override { return "bytes"; }
    std::int64_t vocab() const override { return 257; }
    std::uint32_t eod() const override { return 256; }
    std::string fingerprint() const override
    {
        return sha256_hex("plimsoll tokenizer bytes, version 1: id = byte, end of document 256, vocabulary 257");
    }

    void encode(std::string_view text, std::vector<std::uint32_t>& ids) const override
    {
        ids.insert(ids.end(), reinterpret_cast<const unsigned char*>(text.data()),
                   reinterpret_cast<const unsigned char*>(text.data()) + text.size());
    }

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

bool ends_with(const std::string& text, std::string_view end)
{
    return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& kind)
{
    if (kind == "bytes") { return std::make_unique<BytesTokenizer>(); }
    for (const std::string_view end : {".json", ".tiktoken", ".model"})
    {
        VALIDATE(!ends_with(kind, end), ConfigError,
                 "tokenizer '{}' is not available in this version ({} files cannot be read yet). available: bytes",
                 kind, end);
    }
    throw ConfigError(fmt::format("unknown tokenizer '{}'. available: bytes", kind));
}

}  // namespace plimsoll
