#pragma once
/// JSON as text where it holds names of files: they are bytes, which JSON cannot hold.

#include <nlohmann/json.hpp>
#include <string>

namespace plimsoll
{

/// `indent` -1: on one line. What is not UTF-8 becomes U+FFFD.
template<class Json>
std::string json_text(const Json& json, int indent)
{
    return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace plimsoll
