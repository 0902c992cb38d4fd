#pragma once
/// Records of jsonl that say which of their tokens count in the loss: a prompt and its completion, a chat, or ids with
/// labels. What each becomes: docs/token_shards.md, "Records with a loss mask".

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/text_input.hpp"
#include "io/tokenizer/tokenizer.hpp"

namespace plimsoll
{

enum class RecordFormat
{
    text,               ///< one field, every token counts
    prompt_completion,  ///< the completion counts
    chat,               ///< what the assistant says counts, with the token that ends it
    tokens              ///< input_ids, and labels that are -100 where a token does not count
};

enum class ChatTemplate
{
    chatml,
    llama3
};

struct RecordOptions
{
    RecordFormat format = RecordFormat::text;
    ChatTemplate chat_template = ChatTemplate::chatml;
    std::string messages_field = "messages";
    std::string prompt_field = "prompt";
    std::string completion_field = "completion";
    std::string ids_field = "input_ids";
    std::string labels_field = "labels";  ///< may be missing in a record: every token counts
};

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
