#pragma once
/// The text of a record in jsonl.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace plimsoll
{

class TextFieldParser
{
  public:
    explicit TextFieldParser(std::string field);
    ~TextFieldParser();
    TextFieldParser(TextFieldParser&&) noexcept;
    TextFieldParser& operator=(TextFieldParser&&) noexcept;

    /// Sets `text` to the string of the field (of several with its name the last, as Python's json does); it holds
    /// until the next call. Returns why the line is bad, empty when it is good.
    /// @pre valid UTF-8, without lone surrogate escapes, 64 readable bytes behind the end
    std::string parse(const char* json, std::int64_t bytes, std::string_view& text);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace plimsoll
