#pragma once
/// Text to token ids. One interface for all kinds.
///
/// A Tokenizer is what a definition says (vocabulary, merges, patterns): read once, never changed, shared by threads. A
/// TokenEncoder is one thread's way through it, with that thread's caches and scratch.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll
{

/// What the text of a special token ("<|endoftext|>") means when it stands in a document.
enum class SpecialInText
{
    text,   ///< text like any other
    match,  ///< the token itself
    error,  ///< the document is a bad record: encode() throws FormatError
};

struct TokenizerOptions
{
    SpecialInText special_in_text = SpecialInText::text;
    std::string eod;  ///< content of the token that ends a document; empty: the definition's own
};

struct EncodeCounts
{
    std::int64_t special_in_text = 0;  ///< special tokens' texts found in documents, under any policy
    std::int64_t unknown = 0;          ///< ids of the unknown token
    std::int64_t byte_fallback = 0;    ///< ids of <0xHH> tokens
    std::int64_t cache_lookups = 0;
    std::int64_t cache_hits = 0;
};

/// Of one thread. Its memory is bounded by the definition and a constant, plus the longest text.
class TokenEncoder
{
  public:
    virtual ~TokenEncoder() = default;
    /// Appends the ids of `text`: one document or part of one, well-formed UTF-8 (`bytes` takes any), without the token
    /// that ends a document. @throws FormatError under SpecialInText::error
    virtual void encode(std::string_view text, std::vector<std::uint32_t>& ids) = 0;
    const EncodeCounts& counts() const { return counts_; }

  protected:
    EncodeCounts counts_;
};

/// Immutable and thread-safe; outlives its encoders.
class Tokenizer
{
  public:
    virtual ~Tokenizer() = default;
    /// "bytes" or the file's name without its folder.
    virtual std::string name() const = 0;
    /// One line for people: "byte-level bpe, pattern llama3".
    virtual std::string description() const = 0;
    /// Number of ids, specials included: the highest one + 1.
    virtual std::int64_t vocab() const = 0;
    /// Id of the token that ends a document. @throws ConfigError where none was named and none is known to do so
    std::uint32_t eod() const;
    /// sha256 over what the ids mean: the definition, not how a corpus uses it (TokenizerOptions).
    virtual std::string fingerprint() const = 0;
    virtual std::unique_ptr<TokenEncoder> make_encoder() const = 0;
    /// Id of a special or added token by its content, "<|im_start|>"; of an ordinary one nothing.
    virtual std::optional<std::uint32_t> special_id(std::string_view content) const = 0;
    /// Bytes of the ids; specials as nothing. Ids without a token (gaps of the vocabulary) as nothing.
    virtual std::string decode(const std::uint32_t* ids, std::int64_t num) const = 0;

  protected:
    /// The special token `wanted`; empty: the first of `usual` that there is, or none.
    /// @throws ConfigError when `wanted` is no special token
    void choose_eod(const std::string& wanted, const std::vector<std::string>& usual);

    std::optional<std::uint32_t> eod_;
};

/// Contents that end documents in the tokenizers of the field, the more specific before.
const std::vector<std::string>& usual_document_ends();

/// "bytes": id = byte, 256 = end of document; else a file, by its ending (tokenizer.json, x.tiktoken, x.model).
/// @throws ConfigError for a kind that is not known, IoError and FormatError for a file that cannot be used
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& kind, const TokenizerOptions& options = {});

}  // namespace plimsoll
