#pragma once
/// Pre_tokenizers of a tokenizer.json whose model works on characters: Metaspace, alone or behind splits.

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/tokenizer/regex_split.hpp"
#include "io/tokenizer/split_plan.hpp"

namespace plimsoll
{

struct PreTokenizerStep
{
    enum class Kind
    {
        metaspace,
        whitespace_split,  ///< white space goes
        whitespace,        ///< the same, and word characters apart from others
        punctuation,
        digits,
        split,
    };
    enum class Prepend
    {
        never,
        first,
        always,
    };
    Kind kind = Kind::metaspace;
    std::string replacement{"\xE2\x96\x81"};
    Prepend prepend = Prepend::always;
    bool splits = true;  ///< metaspace: at each replacement
    SplitBehavior behavior = SplitBehavior::isolated;
    bool invert = false;
    bool individual_digits = false;
    std::string from;                             ///< split at a text
    std::shared_ptr<const RegexPattern> pattern;  ///< split at a regex
};

/// The steps of `json` (null: none) in order. `no_spaces`: the normalizer leaves none, so that a split at " " does nothing.
/// @throws FormatError "path: pre_tokenizer X is not supported"
std::vector<PreTokenizerStep> read_pre_tokenizer(const nlohmann::json& json, bool no_spaces, const std::string& path);

/// One thread's way through the steps, which outlive it.
class JsonPreTokenizer
{
  public:
    using Take = std::function<void(std::string_view piece)>;
    explicit JsonPreTokenizer(const std::vector<PreTokenizerStep>& steps);

    /// Calls take(piece) for each piece of `text` in order. `lead`: as JsonNormalizer leaves it.
    void split(std::string_view text, std::size_t lead, const Take& take) { run(0, text, lead, take); }

  private:
    void run(std::size_t index, std::string_view text, std::size_t lead, const Take& take);
    void run_metaspace(std::size_t index, std::string_view text, std::size_t lead, const Take& take);
    void find(std::size_t index, std::string_view text);

    const std::vector<PreTokenizerStep>& steps_;
    std::vector<std::optional<RegexMatcher>> matchers_;
    std::vector<std::vector<RegexMatcher::Span>> spans_;  ///< of each step
    std::string marked_;
};

}  // namespace plimsoll
