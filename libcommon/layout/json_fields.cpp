#include "layout/json_fields.hpp"

#include <limits>
#include <utility>

#include "base/error.hpp"

namespace plimsoll
{
namespace
{

std::string shown(const nlohmann::json& value)
{
    std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
    if (text.size() > 40) { text = text.substr(0, 37) + "..."; }
    return text;
}

}  // namespace

JsonFields::JsonFields(const nlohmann::json& object, std::string origin, std::string where)
    : object_(object), origin_(std::move(origin)), where_(std::move(where))
{
}

std::string JsonFields::name(const std::string& key) const
{
    return fmt::format("{}: {}{}", origin_, where_, key);
}

bool JsonFields::has(const std::string& key) const
{
    const auto it = object_.find(key);
    return it != object_.end() && !it->is_null();
}

std::int64_t JsonFields::required_int(const std::string& key, std::int64_t low, std::int64_t high) const
{
    VALIDATE(has(key), ConfigError, "{} is missing", name(key));
    const nlohmann::json& value = object_.at(key);
    VALIDATE(value.is_number_integer(), ConfigError, "{} must be a whole number (it is {})", name(key), shown(value));
    const bool too_large = value.is_number_unsigned() &&
                           value.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    const std::int64_t number = too_large ? std::numeric_limits<std::int64_t>::max() : value.get<std::int64_t>();
    VALIDATE(number >= low && number <= high, ConfigError, "{} must be between {} and {} (it is {})", name(key), low, high,
             shown(value));
    return number;
}

std::int64_t JsonFields::optional_int(const std::string& key, std::int64_t otherwise, std::int64_t low,
                                      std::int64_t high) const
{
    return has(key) ? required_int(key, low, high) : otherwise;
}

double JsonFields::required_number(const std::string& key) const
{
    VALIDATE(has(key), ConfigError, "{} is missing", name(key));
    return optional_number(key, 0);
}

double JsonFields::optional_number(const std::string& key, double otherwise) const
{
    if (!has(key)) { return otherwise; }
    const nlohmann::json& value = object_.at(key);
    VALIDATE(value.is_number(), ConfigError, "{} must be a number (it is {})", name(key), shown(value));
    return value.get<double>();
}

bool JsonFields::optional_bool(const std::string& key, bool otherwise) const
{
    if (!has(key)) { return otherwise; }
    const nlohmann::json& value = object_.at(key);
    VALIDATE(value.is_boolean(), ConfigError, "{} must be true or false (it is {})", name(key), shown(value));
    return value.get<bool>();
}

std::string JsonFields::optional_string(const std::string& key, const std::string& otherwise) const
{
    if (!has(key)) { return otherwise; }
    const nlohmann::json& value = object_.at(key);
    VALIDATE(value.is_string(), ConfigError, "{} must be a text in quotes (it is {})", name(key), shown(value));
    return value.get<std::string>();
}

std::optional<JsonFields> JsonFields::optional_object(const std::string& key) const
{
    if (!has(key)) { return std::nullopt; }
    const nlohmann::json& value = object_.at(key);
    VALIDATE(value.is_object(), ConfigError, "{} must be an object in braces (it is {})", name(key), shown(value));
    return JsonFields(value, origin_, where_ + key + ".");
}

}  // namespace plimsoll
