#pragma once
/// Simple filters: which documents are not worth their tokens, by length, kinds of characters and repetition. Each is a
/// function of the document alone, so that the choice depends on no order and no thread.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace plimsoll
{

class OptionSet;

/// Zero (or 1 for the largest shares) is no limit. Shares are of characters, except that of lines.
struct DocumentFilterOptions
{
    std::int64_t min_bytes = 0;
    std::int64_t max_bytes = 0;
    std::int64_t min_tokens = 0;  ///< with the token that ends the document
    std::int64_t max_tokens = 0;
    double min_alphabetic = 0;  ///< letters and marks
    double max_digits = 1;      ///< numbers of every script
    double max_white_space = 1;
    double max_symbols = 1;           ///< all the rest: punctuation, symbols, control
    std::int64_t max_line_bytes = 0;  ///< the longest line
    double max_repeated_lines = 1;    ///< share of the lines with text that stood in the document before

    bool any_of_text() const;
    bool any_of_tokens() const { return min_tokens > 0 || max_tokens > 0; }
};

enum class DropReason : std::uint8_t
{
    none,
    min_bytes,
    max_bytes,
    min_tokens,
    max_tokens,
    alphabetic,
    digits,
    white_space,
    symbols,
    line_bytes,
    repeated_lines
};
constexpr int num_drop_reasons = 11;

/// As the option that decided it: "min-bytes", "max-repeated-lines"; for reports.
const char* drop_reason_name(DropReason reason);

/// How many documents were dropped for which reason.
struct DropCounts
{
    std::array<std::int64_t, num_drop_reasons> by_reason{};

    void count(DropReason reason) { ++by_reason[static_cast<std::size_t>(reason)]; }
    /// Without those that were kept.
    std::int64_t total() const;
    void add(const DropCounts& other);
};

/// Immutable; any thread may call. Memory of a call: 16 bytes for each line of the text, where lines are compared.
class DocumentFilter
{
  public:
    explicit DocumentFilter(const DocumentFilterOptions& options) : options_(options) {}

    /// The first limit that the text is outside of. Well-formed UTF-8.
    DropReason reason_to_drop(std::string_view text) const;
    DropReason reason_to_drop(std::int64_t tokens) const;

  private:
    DropReason reason_of_characters(std::string_view text) const;
    DropReason reason_of_lines(std::string_view text) const;

    DocumentFilterOptions options_;
};

/// The limits that are set, by the names of their options: for manifests.
std::vector<std::pair<std::string, std::string>> limits_text(const DocumentFilterOptions& filter);

/// Adds --min-bytes and so on to a command.
void declare_document_filter(OptionSet& options, DocumentFilterOptions& filter);

}  // namespace plimsoll
