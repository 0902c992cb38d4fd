#pragma once
/// Typed access to the fields of one JSON object; every message names the file and the field. null counts as absent.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace plimsoll
{

class JsonFields
{
  public:
    /// `origin` and `where` stand in messages: "config.json: rope_scaling.factor is missing". `object` must outlive this.
    JsonFields(const nlohmann::json& object, std::string origin, std::string where = "");

    bool has(const std::string& key) const;
    /// @throws ConfigError when missing, of another type, or outside [low, high].
    std::int64_t required_int(const std::string& key, std::int64_t low, std::int64_t high) const;
    std::int64_t optional_int(const std::string& key, std::int64_t otherwise, std::int64_t low, std::int64_t high) const;
    double required_number(const std::string& key) const;
    double optional_number(const std::string& key, double otherwise) const;
    bool optional_bool(const std::string& key, bool otherwise) const;
    std::string optional_string(const std::string& key, const std::string& otherwise) const;
    /// Fields of a nested object, none when absent. @throws ConfigError when it is no object.
    std::optional<JsonFields> optional_object(const std::string& key) const;
    const nlohmann::json& value(const std::string& key) const { return object_.at(key); }
    const nlohmann::json& object() const { return object_; }

    /// "config.json: hidden_size" with the path of nested objects.
    std::string name(const std::string& key) const;

  private:
    const nlohmann::json& object_;
    std::string origin_;
    std::string where_;
};

}  // namespace plimsoll
