#include "io/text_input_json.hpp"

#include <fmt/format.h>
#include <simdjson.h>

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
    simdjson::dom::parser parser;
    std::string field;
};

TextFieldParser::TextFieldParser(std::string field) : impl_(std::make_unique<Impl>())
{
    impl_->field = std::move(field);
}
TextFieldParser::~TextFieldParser() = default;
TextFieldParser::TextFieldParser(TextFieldParser&&) noexcept = default;
TextFieldParser& TextFieldParser::operator=(TextFieldParser&&) noexcept = default;

std::string TextFieldParser::parse(const char* json, std::int64_t bytes, std::string_view& text)
{
    simdjson::dom::element root;
    const auto error = impl_->parser.parse(json, static_cast<std::size_t>(bytes), false).get(root);
    if (error != simdjson::SUCCESS) { return fmt::format("not valid json ({})", syntax_reason(error)); }
    simdjson::dom::object object;
    if (root.get(object) != simdjson::SUCCESS) { return fmt::format("not a json object ({})", type_name(root.type())); }
    simdjson::dom::element value;
    if (!find_field(object, impl_->field, value)) { return missing_field(impl_->field, object); }
    if (value.get(text) != simdjson::SUCCESS)
    {
        return fmt::format("field '{}' is {}, not a string", impl_->field, type_name(value.type()));
    }
    return "";
}

}  // namespace plimsoll
