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

}  // namespace plimsoll
