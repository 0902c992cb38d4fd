#include "io/tokenizer/json_pre_tokenizer.hpp"

#include <algorithm>

#include "base/error.hpp"
#include "io/tokenizer/hf_characters.hpp"
#include "io/tokenizer/json_normalizer.hpp"
#include "io/tokenizer/onig_pattern.hpp"
#include "io/tokenizer/unicode.hpp"
#include "io/tokenizer/utf8_step.hpp"

namespace plimsoll
{

namespace
{

using PreJson = nlohmann::json;
using PreKind = PreTokenizerStep::Kind;
using PreSpan = RegexMatcher::Span;

void read_metaspace(const PreJson& json, PreTokenizerStep& step)
{
    step.splits = json.value("split", true);
    step.replacement = json.value("replacement", step.replacement);
    const std::string scheme = json.value("prepend_scheme", json.value("add_prefix_space", true) ? "always" : "never");
    VALIDATE(scheme == "always" || scheme == "first" || scheme == "never", FormatError,
             "prepend_scheme '{}' is not known", scheme);
    step.prepend = scheme == "always"  ? PreTokenizerStep::Prepend::always
                   : scheme == "first" ? PreTokenizerStep::Prepend::first
                                       : PreTokenizerStep::Prepend::never;
}

void read_split(const PreJson& json, PreTokenizerStep& step)
{
    step.kind = PreKind::split;
    step.behavior = split_behavior(json);
    step.invert = json.value("invert", false);
    const PreJson& pattern = json.at("pattern");
    if (pattern.contains("String"))
    {
        step.from = pattern.at("String");
        VALIDATE(!step.from.empty(), FormatError, "pre_tokenizer Split at the empty text is not supported");
        return;
    }
    step.pattern =
        std::make_shared<const RegexPattern>(pcre_of_oniguruma(pattern.at("Regex").get<std::string>()), false);
    VALIDATE(!step.pattern->matches_empty(), FormatError,
             "pre_tokenizer Split at pattern '{}' is not supported (it can match the empty text)",
             pattern.at("Regex").get<std::string>());
}

PreTokenizerStep read_pre_step(const PreJson& json, const std::string& type)
{
    PreTokenizerStep step;
    if (type == "Metaspace") { read_metaspace(json, step); }
    else if (type == "Split") { read_split(json, step); }
    else if (type == "WhitespaceSplit" || type == "Whitespace")
    {
        step.kind = type == "Whitespace" ? PreKind::whitespace : PreKind::whitespace_split;
        step.behavior = SplitBehavior::removed;
    }
    else if (type == "Punctuation")
    {
        step.kind = PreKind::punctuation;
        if (json.contains("behavior")) { step.behavior = split_behavior(json); }
    }
    else if (type == "Digits")
    {
        step.kind = PreKind::digits;
        step.individual_digits = json.value("individual_digits", false);
    }
    else { throw FormatError(fmt::format("pre_tokenizer {} is not supported here", type)); }
    return step;
}

void add_pre_steps(const PreJson& json, bool no_spaces, std::vector<PreTokenizerStep>& steps)
{
    if (json.is_null()) { return; }
    const std::string type = json.value("type", "");
    if (type == "Sequence")
    {
        for (const PreJson& step : json.at("pretokenizers")) { add_pre_steps(step, no_spaces, steps); }
        return;
    }
    // Gemma splits at spaces that its normalizer has replaced.
    if (type == "Split" && no_spaces && json.at("pattern").value("String", "") == " ") { return; }
    steps.push_back(read_pre_step(json, type));
}

/// Spans of one character where is_match(c), and what lies between.
template<class IsMatch>
void character_spans(std::string_view text, std::vector<PreSpan>& spans, IsMatch&& is_match)
{
    for (std::size_t at = 0; at < text.size();)
    {
        const Utf8Step step = utf8_step(text, at);
        const bool match = is_match(step.code_point);
        if (!match && !spans.empty() && !spans.back().is_match) { spans.back().end += step.bytes; }
        else { spans.push_back({at, at + step.bytes, match}); }
        at += step.bytes;
    }
}

/// Runs of white space are matches, runs of word characters and of others are not.
void whitespace_spans(std::string_view text, std::vector<PreSpan>& spans)
{
    int last = -1;
    for (std::size_t at = 0; at < text.size();)
    {
        const Utf8Step step = utf8_step(text, at);
        const bool word = (UnicodeTables::get().properties(step.code_point) & property_word) != 0;
        const int kind = word ? 0 : is_hf_space(step.code_point) ? 1 : 2;
        if (kind == last) { spans.back().end += step.bytes; }
        else { spans.push_back({at, at + step.bytes, kind == 1}); }
        last = kind;
        at += step.bytes;
    }
}

}  // namespace

std::vector<PreTokenizerStep> read_pre_tokenizer(const PreJson& json, bool no_spaces, const std::string& path)
{
    std::vector<PreTokenizerStep> steps;
    with_context(path, [&] { add_pre_steps(json, no_spaces, steps); });
    const auto num =
        std::count_if(steps.begin(), steps.end(), [](const auto& s) { return s.kind == PreKind::metaspace; });
    VALIDATE(num <= 1, FormatError, "{}: more than one Metaspace is not supported", path);
    return steps;
}

JsonPreTokenizer::JsonPreTokenizer(const std::vector<PreTokenizerStep>& steps)
    : steps_(steps),
      matchers_(steps.size()),
      spans_(steps.size())
{
    for (std::size_t i = 0; i < steps.size(); ++i)
    {
        if (steps[i].pattern != nullptr) { matchers_[i].emplace(*steps[i].pattern); }
    }
}

void JsonPreTokenizer::find(std::size_t index, std::string_view text)
{
    const PreTokenizerStep& step = steps_[index];
    std::vector<PreSpan>& spans = spans_[index];
    spans.clear();
    switch (step.kind)
    {
        case PreKind::whitespace_split: return character_spans(text, spans, is_hf_space);
        case PreKind::punctuation: return character_spans(text, spans, is_hf_punctuation);
        case PreKind::whitespace: return whitespace_spans(text, spans);
        case PreKind::digits: return digit_spans(text, step.individual_digits, spans);
        default: break;
    }
    if (step.pattern != nullptr) { matchers_[index]->split(text, spans); }
    else { find_spans(text, step.from, spans); }
}

void JsonPreTokenizer::run(std::size_t index, std::string_view text, std::size_t lead, const Take& take)
{
    if (text.empty()) { return; }
    if (index == steps_.size()) { return take(text); }
    const PreTokenizerStep& step = steps_[index];
    if (step.kind == PreKind::metaspace) { return run_metaspace(index, text, lead, take); }
    find(index, text);
    for_each_piece(spans_[index], step.behavior, step.invert,
                   [&](const PreSpan& span)
                   {
                       const std::size_t rest = lead - std::min(lead, span.begin);
                       run(index + 1, text.substr(span.begin, span.end - span.begin), rest, take);
                   });
    // One huge document should not keep its memory for all that follow.
    if (spans_[index].capacity() > (std::size_t{1} << 20)) { spans_[index] = {}; }
}

void JsonPreTokenizer::run_metaspace(std::size_t index, std::string_view text, std::size_t lead, const Take& take)
{
    using Prepend = PreTokenizerStep::Prepend;
    const PreTokenizerStep& step = steps_[index];
    marked_.assign(text);
    if (text.find(' ') != std::string_view::npos)
    {
        find_spans(text, " ", spans_[index]);
        replace_spans(marked_, spans_[index], step.replacement, lead);
        spans_[index].clear();
    }
    const std::string& mark = step.replacement;
    const bool prepend = step.prepend == Prepend::always || (step.prepend == Prepend::first && lead != 0);
    if (prepend && marked_.compare(0, mark.size(), mark) != 0)
    {
        marked_.insert(0, mark);
        if (lead != 0) { lead += mark.size(); }
    }
    const std::string_view marked = marked_;
    if (!step.splits) { return run(index + 1, marked, lead, take); }
    for (std::size_t at = 0; at < marked.size();)
    {
        const std::size_t end = std::min(marked.find(mark, at + 1), marked.size());
        run(index + 1, marked.substr(at, end - at), lead - std::min(lead, at), take);
        at = end;
    }
}

}  // namespace plimsoll
