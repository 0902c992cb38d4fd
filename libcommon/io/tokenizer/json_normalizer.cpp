#include "io/tokenizer/json_normalizer.hpp"

#include <algorithm>
#include <utility>

#include "base/error.hpp"
#include "io/tokenizer/base64.hpp"
#include "io/tokenizer/hf_characters.hpp"
#include "io/tokenizer/onig_pattern.hpp"
#include "io/tokenizer/utf8_step.hpp"

namespace plimsoll
{

namespace
{

using NormalizerJson = nlohmann::json;
using StepKind = NormalizerStep::Kind;
constexpr std::size_t longest_whole_cluster = 5;

bool read_plain_step(const std::string& type, NormalizerStep& step)
{
    const std::pair<const char*, NormalForm> forms[] = {{"NFC", NormalForm::nfc},
                                                        {"NFD", NormalForm::nfd},
                                                        {"NFKC", NormalForm::nfkc},
                                                        {"NFKD", NormalForm::nfkd}};
    for (const auto& form : forms)
    {
        if (type != form.first) { continue; }
        step.kind = StepKind::form;
        step.form = form.second;
        return true;
    }
    const std::pair<const char*, StepKind> kinds[] = {{"Lowercase", StepKind::lowercase},
                                                      {"StripAccents", StepKind::strip_accents},
                                                      {"Nmt", StepKind::nmt}};
    for (const auto& kind : kinds)
    {
        if (type != kind.first) { continue; }
        step.kind = kind.second;
        return true;
    }
    return false;
}

void read_replace(const NormalizerJson& json, NormalizerStep& step)
{
    step.to = json.at("content");
    const NormalizerJson& pattern = json.at("pattern");
    if (pattern.contains("String"))
    {
        step.from = pattern.at("String");
        VALIDATE(!step.from.empty(), FormatError, "normalizer Replace of the empty text is not supported");
        return;
    }
    step.kind = StepKind::replace_regex;
    step.from = pattern.at("Regex");
    step.pattern = std::make_shared<const RegexPattern>(pcre_of_oniguruma(step.from), false);
    VALIDATE(!step.pattern->matches_empty(), FormatError,
             "normalizer Replace of pattern '{}' is not supported (it can match the empty text)", step.from);
}

void read_precompiled(const NormalizerJson& json, NormalizerStep& step)
{
    step.kind = StepKind::precompiled;
    const std::optional<std::string> blob = decode_base64(json.at("precompiled_charsmap").get<std::string>());
    VALIDATE(blob, FormatError, "precompiled_charsmap is not base64");
    step.charsmap = std::make_shared<const Charsmap>(*blob);
}

void add_steps(const NormalizerJson& json, std::vector<NormalizerStep>& steps)
{
    if (json.is_null()) { return; }
    const std::string type = json.value("type", "");
    if (type == "Sequence")
    {
        for (const NormalizerJson& step : json.at("normalizers")) { add_steps(step, steps); }
        return;
    }
    NormalizerStep step;
    if (type == "Prepend")
    {
        step.kind = StepKind::prepend;
        step.to = json.at("prepend");
    }
    else if (type == "Replace") { read_replace(json, step); }
    else if (type == "Precompiled") { read_precompiled(json, step); }
    else if (type == "Strip")
    {
        step.kind = StepKind::strip;
        step.left = json.at("strip_left");
        step.right = json.at("strip_right");
    }
    else { VALIDATE(read_plain_step(type, step), FormatError, "normalizer {} is not supported", type); }
    steps.push_back(std::move(step));
}

/// Calls take(character) for each of `text`, with how many bytes it has.
template<class Take>
void each_character(std::string_view text, Take&& take)
{
    for (std::size_t at = 0; at < text.size();)
    {
        const Utf8Step step = utf8_step(text, at);
        take(step.code_point, text.substr(at, step.bytes));
        at += step.bytes;
    }
}

/// Fills `out` with what change(character, its bytes, out) appends for each character; characters keep their places.
template<class Change>
void change_characters(std::string& text, std::string& out, std::size_t& lead, Change&& change)
{
    out.clear();
    std::size_t at = 0, new_lead = 0;
    each_character(text,
                   [&](std::uint32_t c, std::string_view bytes)
                   {
                       const bool leads = at < lead;
                       change(c, bytes, out);
                       if (leads) { new_lead = out.size(); }
                       at += bytes.size();
                   });
    text.swap(out);
    lead = new_lead;
}

void strip(std::string& text, const NormalizerStep& step, std::size_t& lead)
{
    std::size_t begin = 0, end = 0, at = 0;
    bool any = false;
    each_character(text,
                   [&](std::uint32_t c, std::string_view bytes)
                   {
                       if (!is_hf_space(c))
                       {
                           if (!any) { begin = at; }
                           any = true;
                           end = at + bytes.size();
                       }
                       at += bytes.size();
                   });
    if (!any && (step.left || step.right)) { begin = end = 0; }
    else
    {
        if (!step.left) { begin = 0; }
        if (!step.right) { end = text.size(); }
    }
    text = text.substr(begin, end - begin);
    lead = std::min(lead - std::min(lead, begin), text.size());
}

void append_nmt(std::uint32_t c, std::string_view bytes, std::string& out)
{
    const bool removed =
        (c >= 1 && c <= 8) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F || c == 0x8F || c == 0x9F;
    if (removed) { return; }
    const bool space = (c >= 0x09 && c <= 0x0D) || c == 0x1680 || (c >= 0x200B && c <= 0x200F) || c == 0x2028 ||
                       c == 0x2029 || c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
    if (space) { out.push_back(' '); }
    else { out.append(bytes); }
}

/// What Hugging Face's Precompiled does, with its bookkeeping of where characters stem from.
class ClusterRewriter
{
  public:
    ClusterRewriter(const Charsmap& charsmap, std::string_view text, std::size_t lead, std::string& out)
        : charsmap_(charsmap),
          text_(text),
          lead_(lead),
          out_(out)
    {
    }

    std::size_t run()
    {
        for (std::size_t at = 0; at < text_.size();)
        {
            const std::size_t end = next_grapheme(text_, at);
            const std::string_view cluster = text_.substr(at, end - at);
            if (cluster.size() > longest_whole_cluster || !rewrite(cluster))
            {
                each_character(cluster,
                               [&](std::uint32_t, std::string_view bytes)
                               {
                                   if (!rewrite(bytes)) { put(bytes, 0); }
                               });
            }
            at = end;
        }
        place();
        return new_lead_;
    }

  private:
    static std::ptrdiff_t num_characters(std::string_view text)
    {
        return std::count_if(text.begin(), text.end(),
                             [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; });
    }

    bool rewrite(std::string_view part)
    {
        const Charsmap::Match match = charsmap_.shortest(part.substr(0, part.find('\0')), 0);
        if (match.length == 0) { return false; }
        if (lead_done_)
        {
            out_.append(match.replacement);
            return true;
        }
        const std::ptrdiff_t before = num_characters(part);
        const std::ptrdiff_t more = num_characters(match.replacement) - before;
        std::ptrdiff_t index = 0;
        each_character(match.replacement,
                       [&](std::uint32_t, std::string_view bytes) { put(bytes, index++ < before ? 0 : 1); });
        // The last character stands for those that vanish, even where it belongs to the cluster before.
        if (more < 0 && placed_ < out_.size()) { change_ += more; }
        return true;
    }

    void put(std::string_view bytes, std::ptrdiff_t change)
    {
        place();
        out_.append(bytes);
        change_ = change;
    }

    /// Where the last character stems from: it is new (change > 0) or stands for 1 - change characters of the text.
    void place()
    {
        if (lead_done_ || placed_ == out_.size()) { return; }
        const bool leads = change_ > 0 ? source_ == 0 || source_ - 1 < lead_ : source_ < lead_;
        placed_ = out_.size();
        if (leads) { new_lead_ = placed_; }
        else { lead_done_ = true; }
        for (std::ptrdiff_t i = change_; i <= 0 && source_ < text_.size(); ++i)
        {
            source_ += utf8_step(text_, source_).bytes;
        }
    }

    const Charsmap& charsmap_;
    std::string_view text_;
    std::size_t lead_, source_ = 0, new_lead_ = 0;
    std::size_t placed_ = 0;     ///< bytes of `out_` whose place is known
    std::ptrdiff_t change_ = 0;  ///< of its last character
    bool lead_done_ = false;
    std::string& out_;
};

}  // namespace

std::vector<NormalizerStep> read_normalizer(const NormalizerJson& json, const std::string& path)
{
    std::vector<NormalizerStep> steps;
    with_context(path, [&] { add_steps(json, steps); });
    return steps;
}

void replace_spans(std::string& text, const std::vector<RegexMatcher::Span>& spans, const std::string& to,
                   std::size_t& lead)
{
    std::string out;
    std::size_t new_lead = 0;
    for (const RegexMatcher::Span& span : spans)
    {
        if (!span.is_match)
        {
            out.append(text, span.begin, span.end - span.begin);
            if (span.begin < lead) { new_lead = out.size() - (span.end - std::min(span.end, lead)); }
            continue;
        }
        out.append(to);
        // New characters stand where the last byte of the match stood.
        if (span.end <= lead) { new_lead = out.size(); }
    }
    text = std::move(out);
    lead = new_lead;
}

void find_spans(std::string_view text, std::string_view from, std::vector<RegexMatcher::Span>& spans)
{
    spans.clear();
    std::size_t at = 0;
    for (std::size_t found = 0; (found = text.find(from, at)) != std::string_view::npos; at = found + from.size())
    {
        if (at < found) { spans.push_back({at, found, false}); }
        spans.push_back({found, found + from.size(), true});
    }
    if (at < text.size()) { spans.push_back({at, text.size(), false}); }
}

JsonNormalizer::JsonNormalizer(const std::vector<NormalizerStep>& steps) : steps_(steps), matchers_(steps.size())
{
    for (std::size_t i = 0; i < steps.size(); ++i)
    {
        if (steps[i].pattern != nullptr) { matchers_[i].emplace(*steps[i].pattern); }
    }
}

void JsonNormalizer::apply(std::string& text, std::size_t& lead)
{
    for (std::size_t i = 0; i < steps_.size() && !text.empty(); ++i) { apply_step(i, text, lead); }
    // One huge document should not keep its memory for all that follow.
    if (buffer_.capacity() > (std::size_t{16} << 20)) { buffer_ = {}; }
    if (spans_.capacity() > (std::size_t{1} << 20)) { spans_ = {}; }
}

void JsonNormalizer::apply_step(std::size_t index, std::string& text, std::size_t& lead)
{
    const NormalizerStep& step = steps_[index];
    const auto lower = [](std::uint32_t c, std::string_view, std::string& out) { append_hf_lower(c, out); };
    const auto unmarked = [](std::uint32_t c, std::string_view bytes, std::string& out)
    {
        if (!is_hf_mark(c)) { out.append(bytes); }
    };
    switch (step.kind)
    {
        case StepKind::prepend:
            text.insert(0, step.to);
            if (lead != 0) { lead += step.to.size(); }
            break;
        case StepKind::replace:
            if (text.find(step.from) == std::string::npos) { return; }
            find_spans(text, step.from, spans_);
            replace_spans(text, spans_, step.to, lead);
            break;
        case StepKind::replace_regex:
            spans_.clear();
            matchers_[index]->split(text, spans_);
            if (spans_.size() > 1 || spans_[0].is_match) { replace_spans(text, spans_, step.to, lead); }
            break;
        case StepKind::form: apply_form(step.form, text, lead); break;
        case StepKind::lowercase: change_characters(text, buffer_, lead, lower); break;
        case StepKind::strip: strip(text, step, lead); break;
        case StepKind::strip_accents: change_characters(text, buffer_, lead, unmarked); break;
        case StepKind::nmt: change_characters(text, buffer_, lead, append_nmt); break;
        case StepKind::precompiled:
            buffer_.clear();
            lead = ClusterRewriter(*step.charsmap, text, lead, buffer_).run();
            text.swap(buffer_);
            break;
    }
}

void JsonNormalizer::apply_form(NormalForm form, std::string& text, std::size_t& lead)
{
    buffer_.clear();
    append_normalized(text, form, buffer_);
    if (lead != 0)
    {
        // Marks of later characters may have come in between, or the first character was composed with them.
        std::string first;
        append_normalized(std::string_view(text).substr(0, lead), form, first);
        const std::size_t most = std::min(first.size(), buffer_.size());
        lead = 0;
        while (lead < most)
        {
            const std::size_t bytes = utf8_step(buffer_, lead).bytes;
            if (lead + bytes > most || first.compare(lead, bytes, buffer_, lead, bytes) != 0) { break; }
            lead += bytes;
        }
        lead = std::max<std::size_t>(lead, utf8_step(buffer_, 0).bytes);
    }
    text.swap(buffer_);
}

}  // namespace plimsoll
