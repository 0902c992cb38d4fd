#pragma once
/// Long strings of a JSON text, taken out before it is parsed: a parser's buffers are several times the text that it is given, which
/// a document of gigabytes cannot have.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace plimsoll
{

/// In the text that is left, a long string is the longest one allowed or longer: nothing else there can be taken for it.
/// Memory: what is left, and the limit for each long string.
class JsonLongStrings
{
  public:
    /// Strings of more than `limit` bytes, as written between their quotes, are long.
    explicit JsonLongStrings(std::size_t limit) : limit_(limit) {}

    /// Whether `json` has a long string; `json` is kept as a view. A text whose last string is not closed has none.
    bool take_out(std::string_view json);
    /// The text without them, with `padding` readable bytes behind it.
    std::string_view rest(std::size_t padding);

    std::size_t num() const { return raw_.size(); }
    /// Between its quotes, escapes as they are.
    std::string_view raw(std::size_t index) const { return raw_[index]; }
    /// Which long string the parsed string `value` of the rest stands for.
    std::optional<std::size_t> stands_for(std::string_view value) const;

  private:
    std::size_t limit_;
    std::string rest_;
    std::vector<std::string_view> raw_;
};

/// Bytes of the first part of `raw`, at most `limit`, that ends neither within an escape or a pair of them nor within a character.
/// @pre limit at least 12; valid UTF-8
std::size_t json_string_part(std::string_view raw, std::size_t limit);

}  // namespace plimsoll
