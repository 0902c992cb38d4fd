#include "io/record_format.hpp"

#include <simdjson.h>

#include <algorithm>

#include "base/error.hpp"
#include "io/text_input_json.hpp"

namespace plimsoll
{

namespace
{

namespace dom = simdjson::dom;

constexpr std::string_view im_start = "<|im_start|>", im_end = "<|im_end|>";
constexpr std::string_view begin_of_text = "<|begin_of_text|>", start_header = "<|start_header_id|>",
                           end_header = "<|end_header_id|>", eot = "<|eot_id|>";

struct ChatRole
{
    std::string_view name;
    std::string_view line;  ///< the name and a line feed, as ChatML has it
    bool trainable;
};

constexpr ChatRole chat_roles[] = {{"system", "system\n", false},
                                   {"user", "user\n", false},
                                   {"assistant", "assistant\n", true}};

/// The last member of this name, as Python's json takes it.
bool record_member(dom::object object, std::string_view name, dom::element& value)
{
    bool found = false;
    for (const auto pair : object)
    {
        if (pair.key != name) { continue; }
        value = pair.value;
        found = true;
    }
    return found;
}

/// "" and the string, or why there is none.
std::string record_string(dom::object object, std::string_view name, std::string_view& text)
{
    dom::element value;
    if (!record_member(object, name, value)) { return fmt::format("no field '{}'", name); }
    if (value.get(text) != simdjson::SUCCESS) { return fmt::format("field '{}' is not a string", name); }
    return "";
}

/// Length of the white space character (as Python's str.strip() has it) at the begin of `text`; 0 when there is none.
std::size_t white_space_bytes(std::string_view text)
{
    if (text.empty()) { return 0; }
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    const unsigned first = byte(0);
    if ((first >= 0x09 && first <= 0x0d) || (first >= 0x1c && first <= 0x20)) { return 1; }
    if (first == 0xc2 && text.size() >= 2) { return byte(1) == 0x85 || byte(1) == 0xa0 ? 2 : 0; }
    if (text.size() < 3 || first < 0xe1 || first > 0xe3) { return 0; }
    const unsigned code = (first & 0xf) << 12 | (byte(1) & 0x3fu) << 6 | (byte(2) & 0x3fu);
    const bool space = code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 ||
                       code == 0x202f || code == 0x205f || code == 0x3000;
    return space ? 3 : 0;
}

std::string_view stripped(std::string_view text)
{
    for (std::size_t bytes = white_space_bytes(text); bytes > 0; bytes = white_space_bytes(text))
    {
        text.remove_prefix(bytes);
    }
    while (!text.empty())
    {
        std::size_t begin = text.size() - 1;
        while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xc0) == 0x80) { --begin; }
        if (white_space_bytes(text.substr(begin)) != text.size() - begin) { break; }
        text.remove_suffix(text.size() - begin);
    }
    return text;
}

void add_text(Document& document, std::string_view text, bool trainable)
{
    if (!text.empty()) { document.parts.push_back({DocumentPart::Kind::text, text, trainable}); }
}

void add_special(Document& document, std::string_view content, bool trainable)
{
    document.parts.push_back({DocumentPart::Kind::special, content, trainable});
}

}  // namespace

struct RecordParser::Impl
{
    RecordOptions options;
    dom::parser parser;
    TextFieldParser reasons{""};  ///< words for what is wrong with a line

    std::string parse_prompt(dom::object object, Document& document) const
    {
        std::string_view prompt, completion;
        std::string reason = record_string(object, options.prompt_field, prompt);
        if (reason.empty()) { reason = record_string(object, options.completion_field, completion); }
        if (!reason.empty()) { return reason; }
        add_text(document, prompt, false);
        add_text(document, completion, true);
        return "";
    }

    std::string parse_chat(dom::object object, Document& document) const
    {
        dom::element value;
        dom::array messages;
        const std::string& name = options.messages_field;
        if (!record_member(object, name, value)) { return fmt::format("no field '{}'", name); }
        if (value.get(messages) != simdjson::SUCCESS) { return fmt::format("field '{}' is not a list", name); }
        std::int64_t number = 0;
        for (const dom::element message : messages)
        {
            const std::string reason = add_message(message, number, document);
            if (!reason.empty()) { return fmt::format("message {}: {}", number, reason); }
            ++number;
        }
        return "";
    }

    std::string add_message(const dom::element& message, std::int64_t number, Document& document) const
    {
        dom::object fields;
        if (message.get(fields) != simdjson::SUCCESS) { return "not a json object"; }
        std::string_view name, content;
        std::string reason = record_string(fields, "role", name);
        if (reason.empty()) { reason = record_string(fields, "content", content); }
        if (!reason.empty()) { return reason; }
        const auto* role = std::find_if(std::begin(chat_roles), std::end(chat_roles),
                                        [&](const ChatRole& known) { return known.name == name; });
        if (role == std::end(chat_roles))
        {
            return fmt::format("role '{}' is not system, user or assistant", name.substr(0, 40));
        }
        if (options.chat_template == ChatTemplate::chatml)
        {
            add_special(document, im_start, false);
            add_text(document, role->line, false);
            add_text(document, content, role->trainable);
            add_special(document, im_end, role->trainable);
            add_text(document, "\n", false);
            return "";
        }
        if (number == 0) { add_special(document, begin_of_text, false); }
        add_special(document, start_header, false);
        add_text(document, role->name, false);
        add_special(document, end_header, false);
        add_text(document, "\n\n", false);
        add_text(document, stripped(content), role->trainable);
        add_special(document, eot, role->trainable);
        return "";
    }

    std::string parse_tokens(dom::object object, Document& document) const
    {
        dom::element value;
        dom::array ids;
        if (!record_member(object, options.ids_field, value))
        {
            return fmt::format("no field '{}'", options.ids_field);
        }
        if (value.get(ids) != simdjson::SUCCESS) { return fmt::format("field '{}' is not a list", options.ids_field); }
        for (const dom::element element : ids)
        {
            std::int64_t id = 0;
            if (element.get(id) != simdjson::SUCCESS || id < 0 || id > 0xffffffffll)
            {
                return fmt::format("entry {} of '{}' is no token id", document.ids.size(), options.ids_field);
            }
            document.ids.push_back(static_cast<std::uint32_t>(id));
        }
        document.mask.assign(document.ids.size(), 1);
        return record_member(object, options.labels_field, value) ? parse_labels(value, document) : "";
    }

    std::string parse_labels(const dom::element& value, Document& document) const
    {
        dom::array labels;
        const std::string& name = options.labels_field;
        if (value.get(labels) != simdjson::SUCCESS) { return fmt::format("field '{}' is not a list", name); }
        std::size_t at = 0;
        for (const dom::element element : labels)
        {
            std::int64_t label = 0;
            if (element.get(label) != simdjson::SUCCESS)
            {
                return fmt::format("entry {} of '{}' is no label", at, name);
            }
            if (at == document.ids.size()) { break; }
            const bool masked = label == -100;
            if (!masked && label != document.ids[at])
            {
                return fmt::format(
                    "label {} at position {} is neither -100 nor the id {} there (labels are not shifted)", label, at,
                    document.ids[at]);
            }
            document.mask[at++] = masked ? 0 : 1;
        }
        const std::size_t num = labels.size();
        if (num != document.ids.size()) { return fmt::format("{} labels for {} token ids", num, document.ids.size()); }
        return "";
    }
};

RecordParser::RecordParser(RecordOptions options) : impl_(std::make_unique<Impl>())
{
    EXPECT(options.format != RecordFormat::text);
    impl_->options = std::move(options);
}
RecordParser::~RecordParser() = default;
RecordParser::RecordParser(RecordParser&&) noexcept = default;
RecordParser& RecordParser::operator=(RecordParser&&) noexcept = default;

std::string RecordParser::parse(const char* json, std::int64_t bytes, Document& document)
{
    document.text = {};
    document.parts.clear();
    document.ids.clear();
    document.mask.clear();
    dom::element root;
    dom::object object;
    const auto error = impl_->parser.parse(json, static_cast<std::size_t>(bytes), false).get(root);
    if (error != simdjson::SUCCESS || root.get(object) != simdjson::SUCCESS)
    {
        std::string_view unused;
        return impl_->reasons.parse(json, bytes, unused);
    }
    switch (impl_->options.format)
    {
        case RecordFormat::prompt_completion: return impl_->parse_prompt(object, document);
        case RecordFormat::chat: return impl_->parse_chat(object, document);
        default: return impl_->parse_tokens(object, document);
    }
}

const char* chat_template_name(ChatTemplate chat_template)
{
    return chat_template == ChatTemplate::chatml ? "chatml" : "llama3";
}

std::vector<std::pair<std::string, std::string>> record_options_text(const RecordOptions& options)
{
    switch (options.format)
    {
        case RecordFormat::prompt_completion:
            return {{"records", "prompt-completion"},
                    {"prompt-field", options.prompt_field},
                    {"completion-field", options.completion_field}};
        case RecordFormat::chat:
            return {{"records", "chat"},
                    {"template", chat_template_name(options.chat_template)},
                    {"messages-field", options.messages_field}};
        case RecordFormat::tokens: return {{"records", "tokens"}};
        default: return {};
    }
}

std::vector<std::string_view> special_tokens_of(const RecordOptions& options)
{
    if (options.format != RecordFormat::chat) { return {}; }
    if (options.chat_template == ChatTemplate::chatml) { return {im_start, im_end}; }
    return {begin_of_text, start_header, end_header, eot};
}

void check_special_tokens(const RecordOptions& options, const Tokenizer& tokenizer)
{
    for (const std::string_view content : special_tokens_of(options))
    {
        VALIDATE(
            tokenizer.special_id(content).has_value(), ConfigError,
            "template {} needs the special token '{}', which tokenizer '{}' does not have. choose another --template "
            "or a tokenizer made for it",
            chat_template_name(options.chat_template), content, tokenizer.name());
    }
}

namespace
{

/// Index of the first of `ids` that reaches beyond the first `bytes` bytes of what they decode to.
std::size_t token_behind(const Tokenizer& tokenizer, const std::uint32_t* ids, std::size_t num, std::size_t bytes)
{
    std::size_t end = 0;
    for (std::size_t i = 0; i < num; ++i)
    {
        end += tokenizer.decode(ids + i, 1).size();
        if (end > bytes) { return i; }
    }
    return num;
}

}  // namespace

void encode_joined(const Tokenizer& tokenizer, TokenEncoder& encoder, const DocumentPart* parts, std::size_t num,
                   std::vector<std::uint32_t>& ids, std::vector<std::uint8_t>* mask)
{
    const std::size_t begin = ids.size();
    std::string text;
    for (std::size_t i = 0; i < num; ++i)
    {
        EXPECT(parts[i].kind == DocumentPart::Kind::text);
        text += parts[i].text;
    }
    encoder.encode(text, ids);
    if (mask == nullptr) { return; }
    mask->resize(ids.size(), parts[num - 1].trainable ? 1 : 0);
    // From the last border to the first, so that each leaves what is behind it alone.
    std::size_t border = text.size();
    std::vector<std::uint32_t> before;
    for (std::size_t i = num - 1; i > 0; --i)
    {
        border -= parts[i].text.size();
        before.clear();
        encoder.encode(std::string_view(text).substr(0, border), before);
        const std::size_t tokens = ids.size() - begin;
        const bool cut = before.size() <= tokens &&
                         std::equal(before.begin(), before.end(), ids.begin() + static_cast<std::ptrdiff_t>(begin));
        const std::size_t stop = cut ? before.size() : token_behind(tokenizer, ids.data() + begin, tokens, border);
        std::fill_n(mask->begin() + static_cast<std::ptrdiff_t>(begin), stop, parts[i - 1].trainable ? 1 : 0);
    }
}

}  // namespace plimsoll
