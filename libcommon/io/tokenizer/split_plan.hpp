#pragma once
/// What a definition does to text before merging, compiled: a known family's scanner, DeepSeek's, or a list of stages.

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "io/tokenizer/piece_scanner.hpp"
#include "io/tokenizer/regex_split.hpp"
#include "io/tokenizer/split_rules.hpp"

namespace plimsoll
{

enum class SplitBehavior
{
    removed,
    isolated,
    contiguous,
    merged_with_previous,
    merged_with_next
};

/// One of several splits, each of which cuts what the one before left.
struct SplitStage
{
    enum class Kind
    {
        scanner,
        regex,
        digits
    };
    Kind kind = Kind::scanner;
    SplitRules rules;                             ///< scanner
    std::shared_ptr<const RegexPattern> pattern;  ///< regex
    std::string pattern_text;
    SplitBehavior behavior = SplitBehavior::isolated;
    bool invert = false;
    bool individual_digits = false;
};

struct SplitPlan
{
    enum class Kind
    {
        whole,
        scanner,
        deepseek,
        stages
    };
    Kind kind = Kind::whole;
    SplitRules rules;  ///< scanner
    std::vector<SplitStage> stages;
    bool prefix_space = false;  ///< a space goes before text that does not begin with one
    std::string description;    ///< "pattern llama3"
};

/// Whether a pre_tokenizer maps bytes to characters as GPT-2 does.
bool is_byte_level(const nlohmann::json& pre_tokenizer);

/// @throws FormatError "pre_tokenizer X is not supported (...)"
SplitPlan compile_split_plan(const nlohmann::json& pre_tokenizer);
SplitPlan plan_of_rules(const SplitRules& rules);

/// The behaviour of a Split or Punctuation. @throws FormatError for one that is not known
SplitBehavior split_behavior(const nlohmann::json& pre_tokenizer);

/// Spans of numbers and of what lies between them, behind what `spans` has.
void digit_spans(std::string_view text, bool individual, std::vector<RegexMatcher::Span>& spans);

/// Calls take(span) for each piece that is left of `spans` (matches and what lies between them; changed here).
template<class Take>
void for_each_piece(std::vector<RegexMatcher::Span>& spans, SplitBehavior behavior, bool invert, Take&& take);

/// Joins spans by a behaviour other than isolated and removed.
void merge_spans(std::vector<RegexMatcher::Span>& spans, SplitBehavior behavior);

/// One thread's way through a plan of stages.
class StageSplitter
{
  public:
    explicit StageSplitter(const std::vector<SplitStage>& stages);
    /// Pieces of `text` in order; valid until the next call.
    const std::vector<std::string_view>& split(std::string_view text);

  private:
    struct Stage
    {
        const SplitStage* stage;
        std::unique_ptr<PieceScanner> scanner;
        std::unique_ptr<RegexMatcher> matcher;
    };
    void apply(Stage& stage, std::string_view text);

    std::vector<Stage> stages_;
    std::vector<RegexMatcher::Span> spans_;
    std::vector<std::string_view> pieces_;
    std::vector<std::string_view> next_;
};

template<class Take>
void for_each_piece(std::vector<RegexMatcher::Span>& spans, SplitBehavior behavior, bool invert, Take&& take)
{
    if (invert)
    {
        for (RegexMatcher::Span& span : spans) { span.is_match = !span.is_match; }
    }
    const bool merges = behavior != SplitBehavior::isolated && behavior != SplitBehavior::removed;
    if (merges) { merge_spans(spans, behavior); }
    for (const RegexMatcher::Span& span : spans)
    {
        if (behavior != SplitBehavior::removed || !span.is_match) { take(span); }
    }
}

}  // namespace plimsoll
