#include "io/text_input_json.hpp"

#include <fmt/format.h>
#include <simdjson.h>

#include "io/json_long_strings.hpp"

namespace plimsoll
{

namespace
{

std::string_view type_name(simdjson::dom::element_type type)
{
    using Type = simdjson::dom::element_type;
    switch (type)
    {
        case Type::ARRAY: return "an array";
        case Type::OBJECT: return "an object";
        case Type::STRING: return "a string";
        case Type::BOOL: return "a boolean";
        case Type::NULL_VALUE: return "null";
        default: return "a number";
    }
}

std::string_view syntax_reason(simdjson::error_code code)
{
    switch (code)
    {
        case simdjson::UNCLOSED_STRING: return "unclosed string";
        case simdjson::UNESCAPED_CHARS: return "control character inside a string";
        case simdjson::STRING_ERROR: return "bad escape in a string";
        case simdjson::NUMBER_ERROR: return "bad number";
        case simdjson::T_ATOM_ERROR:
        case simdjson::F_ATOM_ERROR:
        case simdjson::N_ATOM_ERROR: return "bad literal, known: true false null";
        case simdjson::DEPTH_ERROR: return "nested too deeply";
        case simdjson::EMPTY: return "empty";
        case simdjson::CAPACITY:
        case simdjson::MEMALLOC: return "too large for the memory that a parser of it takes";
        default: return "missing or superfluous brace, comma, colon or quote";
    }
}

std::string missing_field(const std::string& field, simdjson::dom::object object)
{
    std::string names;
    int listed = 0;
    for (const auto pair : object)
    {
        if (++listed > 8)
        {
            names += " ...";
            break;
        }
        names += ' ';
        names += pair.key.substr(0, 40);
    }
    return fmt::format("no field '{}' ({})", field, names.empty() ? "the object is empty" : "fields:" + names);
}

/// The last member of this name, as Python's json takes it.
bool find_member(simdjson::dom::object object, std::string_view name, simdjson::dom::element& value)
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

/// The member `field`, or where there is none and it has dots, the member at the end of that path.
bool find_field(simdjson::dom::object object, std::string_view field, simdjson::dom::element& value)
{
    if (find_member(object, field, value)) { return true; }
    const std::size_t dot = field.find('.');
    if (dot == std::string_view::npos || !find_member(object, field.substr(0, dot), value)) { return false; }
    simdjson::dom::object inner;
    return value.get(inner) == simdjson::SUCCESS && find_field(inner, field.substr(dot + 1), value);
}

}  // namespace

struct TextFieldParser::Impl
{
    Impl(std::string name, std::size_t long_string) : field(std::move(name)), limit(long_string), long_strings(long_string) {}

    std::string parse(std::string_view json, std::string_view& text);
    std::string parse_long(std::string_view raw);

    simdjson::dom::parser parser;
    std::string field;
    std::size_t limit;
    JsonLongStrings long_strings;
    simdjson::dom::parser part_parser;
    std::string part;
    std::string long_text;
};

TextFieldParser::TextFieldParser(std::string field, std::size_t long_string)
    : impl_(std::make_unique<Impl>(std::move(field), long_string))
{
}
TextFieldParser::~TextFieldParser() = default;
TextFieldParser::TextFieldParser(TextFieldParser&&) noexcept = default;
TextFieldParser& TextFieldParser::operator=(TextFieldParser&&) noexcept = default;

/// `json` has 64 readable bytes behind its end.
std::string TextFieldParser::Impl::parse(std::string_view json, std::string_view& text)
{
    simdjson::dom::element root;
    const auto error = parser.parse(json.data(), json.size(), false).get(root);
    if (error != simdjson::SUCCESS) { return fmt::format("not valid json ({})", syntax_reason(error)); }
    simdjson::dom::object object;
    if (root.get(object) != simdjson::SUCCESS) { return fmt::format("not a json object ({})", type_name(root.type())); }
    simdjson::dom::element value;
    if (!find_field(object, field, value)) { return missing_field(field, object); }
    if (value.get(text) != simdjson::SUCCESS)
    {
        return fmt::format("field '{}' is {}, not a string", field, type_name(value.type()));
    }
    return "";
}

/// Into long_text what the string says, part by part. Returns why it is bad.
std::string TextFieldParser::Impl::parse_long(std::string_view raw)
{
    long_text.clear();
    long_text.reserve(raw.size());
    while (!raw.empty())
    {
        const std::size_t bytes = json_string_part(raw, limit);
        part.reserve(limit + 2 + simdjson::SIMDJSON_PADDING);
        part.assign(1, '"').append(raw.substr(0, bytes)).append(1, '"');
        std::string_view text;
        const auto error = part_parser.parse(part.data(), part.size(), false).get(text);
        if (error != simdjson::SUCCESS) { return fmt::format("not valid json ({})", syntax_reason(error)); }
        long_text += text;
        raw.remove_prefix(bytes);
    }
    return "";
}

std::string TextFieldParser::parse(const char* json, std::int64_t bytes, std::string_view& text)
{
    const std::string_view line(json, static_cast<std::size_t>(bytes));
    Impl& impl = *impl_;
    if (line.size() <= impl.limit || !impl.long_strings.take_out(line)) { return impl.parse(line, text); }
    const std::string reason = impl.parse(impl.long_strings.rest(simdjson::SIMDJSON_PADDING), text);
    if (!reason.empty()) { return reason; }
    const auto wanted = impl.long_strings.stands_for(text);
    for (std::size_t index = 0; index < impl.long_strings.num(); ++index)
    {
        // The wanted one last: what is in long_text then stays.
        if (index == wanted) { continue; }
        if (std::string bad = impl.parse_long(impl.long_strings.raw(index)); !bad.empty()) { return bad; }
    }
    if (!wanted) { return ""; }
    std::string bad = impl.parse_long(impl.long_strings.raw(*wanted));
    text = impl.long_text;
    return bad;
}

}  // namespace plimsoll
