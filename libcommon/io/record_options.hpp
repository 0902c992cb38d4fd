#pragma once
/// What a record of jsonl is: a text, or one of the kinds that say which of their tokens count (record_format.hpp).

#include <string>

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

}  // namespace plimsoll
