#pragma once
/// Records of jsonl that say which of their tokens count in the loss: a prompt and its completion, a chat, or ids with
/// labels. What each becomes: docs/token_shards.md, "Records with a loss mask".

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/record_options.hpp"
#include "io/text_input.hpp"
#include "io/tokenizer/tokenizer.hpp"

namespace plimsoll
{

/// One thread. Memory: the longest record.
class RecordParser
{
  public:
    /// @pre the format is not text
    explicit RecordParser(RecordOptions options);
    ~RecordParser();
    RecordParser(RecordParser&&) noexcept;
    RecordParser& operator=(RecordParser&&) noexcept;

    /// Sets parts, or ids and mask, of `document`; its views hold until the next call. Neighbouring parts of kind text
    /// are one text for the tokenizer (see encode_joined()). Returns why the record is bad, empty when it is good.
    /// @pre valid UTF-8, without lone surrogate escapes, 64 readable bytes behind the end
    std::string parse(const char* json, std::int64_t bytes, Document& document);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

/// "chatml" or "llama3".
const char* chat_template_name(ChatTemplate chat_template);

/// What decides the tokens of records, for manifests: name and value.
std::vector<std::pair<std::string, std::string>> record_options_text(const RecordOptions& options);

/// The special tokens that records of this kind become.
std::vector<std::string_view> special_tokens_of(const RecordOptions& options);

/// @throws ConfigError that names template, token and tokenizer, for the first token that the tokenizer lacks
void check_special_tokens(const RecordOptions& options, const Tokenizer& tokenizer);

/// Encodes neighbouring text parts as the one text that they are, since a token may reach over their border (a line
/// feed at the end of one and at the begin of the next), and says which tokens count: a token belongs to the last part
/// that it holds a byte of. Appends to `ids` and, unless null, to `mask`.
void encode_joined(const Tokenizer& tokenizer, TokenEncoder& encoder, const DocumentPart* parts, std::size_t num,
                   std::vector<std::uint32_t>& ids, std::vector<std::uint8_t>* mask);

}  // namespace plimsoll
