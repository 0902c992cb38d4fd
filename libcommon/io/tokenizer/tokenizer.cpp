#include "io/tokenizer/tokenizer.hpp"

#include "base/error.hpp"
#include "io/tokenizer/bytes_tokenizer.hpp"

namespace plimsoll
{

namespace
{

bool ends_with(const std::string& text, std::string_view end)
{
    return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

}  // namespace

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& kind, const TokenizerOptions&)
{
    if (kind == "bytes") { return make_bytes_tokenizer(); }
    for (const std::string_view end : {".json", ".tiktoken", ".model"})
    {
        VALIDATE(!ends_with(kind, end), ConfigError,
                 "tokenizer '{}' is not available in this version ({} files cannot be read yet). available: bytes",
                 kind, end);
    }
    throw ConfigError(fmt::format("unknown tokenizer '{}'. available: bytes", kind));
}

}  // namespace plimsoll
