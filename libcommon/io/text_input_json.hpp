#pragma once
/// The text of a record in jsonl.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace plimsoll
{

class TextFieldParser
{
  public:
    /// Strings of more than `long_string` bytes are parsed in parts: simdjson's buffers take some 14 bytes for each byte of a text.
    explicit TextFieldParser(std::string field, std::size_t long_string = std::size_t{4} << 20);
    ~TextFieldParser();
    TextFieldParser(TextFieldParser&&) noexcept;
    TextFieldParser& operator=(TextFieldParser&&) noexcept;

    /// Sets `text` to the string of the field (of several with its name the last, as Python's json does); it holds
    /// until the next call. Returns why the line is bad, empty when it is good. Memory: up to `bytes` for a long text.
    /// @pre valid UTF-8, without lone surrogate escapes, 64 readable bytes behind the end
    std::string parse(const char* json, std::int64_t bytes, std::string_view& text);

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace plimsoll
