#include "io/tokenizer/tokenizer.hpp"

#include <algorithm>
#include <array>

#include "base/error.hpp"
#include "io/file.hpp"
#include "io/tokenizer/byte_bpe_tokenizer.hpp"
#include "io/tokenizer/bytes_tokenizer.hpp"
#include "io/tokenizer/json_subwords.hpp"
#include "io/tokenizer/rank_file.hpp"
#include "io/tokenizer/sentencepiece_tokenizer.hpp"
#include "io/tokenizer/tokenizer_json.hpp"

namespace plimsoll
{

namespace
{

constexpr std::array<std::string_view, 3> known_endings = {".json", ".tiktoken", ".model"};

bool ends_with(const std::string& text, std::string_view end)
{
    return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// "x.tiktoken:pattern=llama3" -> "x.tiktoken", "llama3".
std::pair<std::string, std::string> split_pattern_option(const std::string& kind)
{
    const std::string_view key = ":pattern=";
    const std::size_t at = kind.rfind(key);
    if (at == std::string::npos) { return {kind, ""}; }
    VALIDATE(at + key.size() < kind.size(), ConfigError, "tokenizer '{}' names no pattern", kind);
    return {kind.substr(0, at), kind.substr(at + key.size())};
}

std::unique_ptr<Tokenizer> make_from_json(const std::string& path, const TokenizerOptions& options)
{
    TokenizerJson json = read_tokenizer_json(path);
    if (is_byte_bpe(json)) { return make_byte_bpe(std::move(json), options); }
    return make_sentencepiece_like(json, options);
}

}  // namespace

std::uint32_t Tokenizer::eod() const
{
    VALIDATE(eod_, ConfigError,
             "tokenizer '{}' has no token that is known to end a document (<|endoftext|>, </s>, <eos> and the like). "
             "name one with --eod",
             name());
    return *eod_;
}

void Tokenizer::choose_eod(const std::string& wanted, const std::vector<std::string>& usual)
{
    if (!wanted.empty())
    {
        eod_ = special_id(wanted);
        VALIDATE(eod_, ConfigError,
                 "tokenizer '{}' has no special token '{}' to end a document with. name another with --eod", name(),
                 wanted);
    }
    for (std::size_t i = 0; i < usual.size() && !eod_; ++i) { eod_ = special_id(usual[i]); }
}

const std::vector<std::string>& usual_document_ends()
{
    static const std::vector<std::string> names =
        {"<|endoftext|>",
         "<|end_of_text|>",
         std::string("<\xEF\xBD\x9C") + "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
         "</s>",
         "<|im_end|>",
         "<eos>",
         "<|eos|>",
         "[EOS]",
         "<|eot_id|>"};
    return names;
}

std::unique_ptr<Tokenizer> make_tokenizer(const std::string& kind, const TokenizerOptions& options)
{
    if (kind == "bytes")
    {
        VALIDATE(options.eod.empty(), ConfigError, "tokenizer 'bytes' has its own end of a document (256), not '{}'",
                 options.eod);
        return make_bytes_tokenizer();
    }
    const auto [path, pattern] = split_pattern_option(kind);
    const bool is_ranks = ends_with(path, ".tiktoken");
    VALIDATE(pattern.empty() || !ends_with(path, ".json"), ConfigError,
             "tokenizer '{}' has its pattern in the file. leave out :pattern={}", path, pattern);
    VALIDATE(path_exists(path) || std::none_of(known_endings.begin(), known_endings.end(),
                                               [&path = path](std::string_view end) { return ends_with(path, end); }),
             ConfigError,
             "cannot read tokenizer '{}' (no such file). give the path of a .json, .tiktoken or .model file", path);
    VALIDATE(!is_directory(path), ConfigError, "cannot read tokenizer '{}' (a directory). name the file in it", path);
    if (ends_with(path, ".json")) { return make_from_json(path, options); }
    if (is_ranks) { return make_rank_bpe(path, read_rank_file(path), pattern, options); }
    if (ends_with(path, ".model"))
    {
        const std::string text = read_text_file(path);
        if (looks_like_rank_file(text)) { return make_rank_bpe(path, parse_rank_file(path, text), pattern, options); }
        VALIDATE(pattern.empty(), ConfigError,
                 "tokenizer '{}' is a sentencepiece model, which has no pattern. leave out :pattern={}", path, pattern);
        return read_sentencepiece_model(path, options);
    }
    throw ConfigError(
        fmt::format("unknown tokenizer '{}'. known: bytes, or a file that ends in .json, .tiktoken or .model", kind));
}

}  // namespace plimsoll
