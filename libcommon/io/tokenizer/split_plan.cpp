#include "io/tokenizer/split_plan.hpp"

#include <algorithm>
#include <map>

#include "base/error.hpp"
#include "io/tokenizer/onig_pattern.hpp"

namespace plimsoll
{

namespace
{

using Json = nlohmann::json;
using Span = RegexMatcher::Span;

std::string type_of(const Json& part)
{
    return part.is_object() && part.contains("type") && part["type"].is_string() ? part["type"].get<std::string>() : "";
}

bool flag_of(const Json& part, const char* key, bool fallback)
{
    return part.contains(key) && part[key].is_boolean() ? part[key].get<bool>() : fallback;
}

// Sequences inside sequences, in order.
void flatten(const Json& part, std::vector<Json>& parts)
{
    if (type_of(part) != "Sequence")
    {
        parts.push_back(part);
        return;
    }
    VALIDATE(part.contains("pretokenizers") && part["pretokenizers"].is_array(), FormatError,
             "pre_tokenizer Sequence has no list");
    for (const Json& inner : part["pretokenizers"]) { flatten(inner, parts); }
}

SplitStage split_stage(const Json& part)
{
    SplitStage stage;
    stage.behavior = split_behavior(part);
    stage.invert = flag_of(part, "invert", false);
    const Json pattern = part.value("pattern", Json());
    const bool is_regex = pattern.is_object() && pattern.contains("Regex") && pattern["Regex"].is_string();
    const bool is_text = pattern.is_object() && pattern.contains("String") && pattern["String"].is_string();
    VALIDATE(is_regex || is_text, FormatError, "pre_tokenizer Split has no pattern Regex or String");
    stage.pattern_text = pattern[is_regex ? "Regex" : "String"].get<std::string>();
    const SplitRules* rules = is_regex ? recognise_pattern(stage.pattern_text) : nullptr;
    // The families match every character: to keep the matches and drop the rest is the same as to isolate them.
    const bool keeps_matches = (stage.behavior == SplitBehavior::isolated && !stage.invert) ||
                               (stage.behavior == SplitBehavior::removed && stage.invert);
    if (rules != nullptr && keeps_matches)
    {
        stage.rules = *rules;
        return stage;
    }
    stage.kind = SplitStage::Kind::regex;
    stage.pattern = std::make_shared<const RegexPattern>(
        is_text ? stage.pattern_text : pcre_of_oniguruma(stage.pattern_text), is_text);
    return stage;
}

bool is_deepseek(const std::vector<SplitStage>& stages)
{
    if (stages.size() != 3) { return false; }
    for (const SplitStage& stage : stages)
    {
        if (stage.kind != SplitStage::Kind::regex || stage.behavior != SplitBehavior::isolated || stage.invert)
        {
            return false;
        }
    }
    const DeepseekPatterns& known = deepseek_patterns();
    return stages[0].pattern_text == known.numbers && stages[1].pattern_text == known.cjk &&
           stages[2].pattern_text == known.words;
}

std::string describe(const SplitPlan& plan)
{
    switch (plan.kind)
    {
        case SplitPlan::Kind::whole: return "no pattern";
        case SplitPlan::Kind::scanner: return fmt::format("pattern {}", plan.rules.name);
        case SplitPlan::Kind::deepseek: return "pattern deepseek-v3";
        case SplitPlan::Kind::stages: break;
    }
    return fmt::format("{} splits of its own (pcre2 {})", plan.stages.size(), regex_version());
}

}  // namespace

SplitBehavior split_behavior(const Json& part)
{
    static const std::map<std::string, SplitBehavior> known = {{"Removed", SplitBehavior::removed},
                                                               {"Isolated", SplitBehavior::isolated},
                                                               {"Contiguous", SplitBehavior::contiguous},
                                                               {"MergedWithPrevious",
                                                                SplitBehavior::merged_with_previous},
                                                               {"MergedWithNext", SplitBehavior::merged_with_next}};
    const std::string name =
        part.contains("behavior") && part["behavior"].is_string() ? part["behavior"].get<std::string>() : "";
    const auto found = known.find(name);
    VALIDATE(found != known.end(), FormatError, "pre_tokenizer {} with behavior '{}' is not supported", type_of(part),
             name);
    return found->second;
}

void digit_spans(std::string_view text, bool individual, std::vector<Span>& spans)
{
    const UnicodeTables& tables = UnicodeTables::get();
    for (std::size_t i = 0; i < text.size();)
    {
        const CodePoint c = decode_utf8(text.data() + i);
        const bool is_number = tables.char_class(c.value) == class_number;
        const bool joins = !spans.empty() && spans.back().is_match == is_number && !(is_number && individual);
        if (joins) { spans.back().end = i + c.bytes; }
        else { spans.push_back({i, i + c.bytes, is_number}); }
        i += c.bytes;
    }
}

void merge_spans(std::vector<Span>& spans, SplitBehavior behavior)
{
    std::vector<Span> result;
    const bool to_next = behavior == SplitBehavior::merged_with_next;
    bool after_match = false;
    for (std::size_t i = 0; i < spans.size(); ++i)
    {
        const Span& span = spans[to_next ? spans.size() - 1 - i : i];
        const bool joins = behavior == SplitBehavior::contiguous
                               ? !result.empty() && result.back().is_match == span.is_match
                               : !result.empty() && span.is_match && !after_match;
        after_match = span.is_match;
        if (!joins) { result.push_back(span); }
        else if (to_next) { result.back().begin = span.begin; }
        else { result.back().end = span.end; }
    }
    if (to_next) { std::reverse(result.begin(), result.end()); }
    spans = std::move(result);
}

bool is_byte_level(const Json& pre_tokenizer)
{
    if (type_of(pre_tokenizer) == "ByteLevel") { return true; }
    if (type_of(pre_tokenizer) != "Sequence" || !pre_tokenizer.contains("pretokenizers")) { return false; }
    for (const Json& inner : pre_tokenizer["pretokenizers"])
    {
        if (is_byte_level(inner)) { return true; }
    }
    return false;
}

SplitPlan plan_of_rules(const SplitRules& rules)
{
    SplitPlan plan;
    plan.kind = SplitPlan::Kind::scanner;
    plan.rules = rules;
    plan.description = describe(plan);
    return plan;
}

SplitPlan compile_split_plan(const Json& pre_tokenizer)
{
    SplitPlan plan;
    std::vector<Json> parts;
    flatten(pre_tokenizer, parts);
    bool mapped = false;
    for (const Json& part : parts)
    {
        const std::string type = type_of(part);
        VALIDATE(!mapped, FormatError,
                 "pre_tokenizer {} behind ByteLevel is not supported (it would split characters that stand for bytes)",
                 type);
        if (type == "Split") { plan.stages.push_back(split_stage(part)); }
        else if (type == "Digits")
        {
            SplitStage stage;
            stage.kind = SplitStage::Kind::digits;
            stage.individual_digits = flag_of(part, "individual_digits", false);
            plan.stages.push_back(stage);
        }
        else if (type == "ByteLevel")
        {
            plan.prefix_space = flag_of(part, "add_prefix_space", true);
            VALIDATE(!plan.prefix_space || plan.stages.empty(), FormatError,
                     "pre_tokenizer ByteLevel with add_prefix_space behind other splits is not supported (each piece "
                     "would get a space)");
            if (flag_of(part, "use_regex", true))
            {
                SplitStage stage;
                stage.rules = *find_split_rules("gpt2");
                plan.stages.push_back(stage);
            }
            mapped = true;
        }
        else
        {
            throw FormatError(fmt::format("pre_tokenizer {} is not supported (of a byte-level bpe). supported: Split, "
                                          "Digits, ByteLevel, Sequence",
                                          type));
        }
    }
    if (plan.stages.empty()) { plan.kind = SplitPlan::Kind::whole; }
    else if (plan.stages.size() == 1 && plan.stages[0].kind == SplitStage::Kind::scanner)
    {
        plan.kind = SplitPlan::Kind::scanner;
        plan.rules = plan.stages[0].rules;
    }
    else { plan.kind = is_deepseek(plan.stages) ? SplitPlan::Kind::deepseek : SplitPlan::Kind::stages; }
    plan.description = describe(plan);
    return plan;
}

StageSplitter::StageSplitter(const std::vector<SplitStage>& stages)
{
    for (const SplitStage& stage : stages)
    {
        Stage made{&stage, nullptr, nullptr};
        if (stage.kind == SplitStage::Kind::scanner) { made.scanner = std::make_unique<PieceScanner>(stage.rules); }
        if (stage.kind == SplitStage::Kind::regex) { made.matcher = std::make_unique<RegexMatcher>(*stage.pattern); }
        stages_.push_back(std::move(made));
    }
}

void StageSplitter::apply(Stage& stage, std::string_view text)
{
    if (stage.scanner != nullptr)
    {
        const char* const end = text.data() + text.size();
        for (const char* at = text.data(); at < end;)
        {
            const char* stop = stage.scanner->next(at, end);
            next_.emplace_back(at, static_cast<std::size_t>(stop - at));
            at = stop;
        }
        return;
    }
    spans_.clear();
    if (stage.matcher == nullptr) { digit_spans(text, stage.stage->individual_digits, spans_); }
    else { stage.matcher->split(text, spans_); }
    for_each_piece(spans_, stage.stage->behavior, stage.stage->invert,
                   [&](const Span& span) { next_.push_back(text.substr(span.begin, span.end - span.begin)); });
}

const std::vector<std::string_view>& StageSplitter::split(std::string_view text)
{
    pieces_.assign(1, text);
    for (Stage& stage : stages_)
    {
        next_.clear();
        for (const std::string_view piece : pieces_) { apply(stage, piece); }
        pieces_.swap(next_);
    }
    return pieces_;
}

}  // namespace plimsoll
