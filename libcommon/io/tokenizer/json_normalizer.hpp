#pragma once
/// Normalizers of a tokenizer.json whose model works on characters, as Hugging Face's tokenizers applies them, its quirks included:
/// Precompiled rewrites a grapheme cluster of fewer than 6 bytes as a whole by the shortest rule that it starts with.

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "io/tokenizer/charsmap.hpp"
#include "io/tokenizer/regex_split.hpp"
#include "io/tokenizer/unicode_normalize.hpp"

namespace plimsoll
{

struct NormalizerStep
{
    enum class Kind
    {
        prepend,
        replace,
        replace_regex,
        form,
        lowercase,
        strip,
        strip_accents,
        nmt,
        precompiled,
    };
    Kind kind = Kind::replace;
    std::string from, to;
    NormalForm form = NormalForm::nfc;
    bool left = false, right = false;             ///< strip
    std::shared_ptr<const RegexPattern> pattern;  ///< replace_regex
    std::shared_ptr<const Charsmap> charsmap;     ///< precompiled
};

/// The steps of `json` (null: none) in order. @throws FormatError "path: normalizer X is not supported"
std::vector<NormalizerStep> read_normalizer(const nlohmann::json& json, const std::string& path);

/// Replaces each span of `text` that is a match by `to`. Of the first `lead` bytes of the text, which stem from the start of the
/// original, as many are left as stem from there afterwards.
void replace_spans(std::string& text, const std::vector<RegexMatcher::Span>& spans, const std::string& to,
                   std::size_t& lead);

/// Spans of `from` (not empty) and of what lies between, in place of what `spans` had.
void find_spans(std::string_view text, std::string_view from, std::vector<RegexMatcher::Span>& spans);

/// One thread's way through the steps, which outlive it.
class JsonNormalizer
{
  public:
    explicit JsonNormalizer(const std::vector<NormalizerStep>& steps);

    /// `lead`: how many bytes at the start of `text` stem from the first character of the original, for what Hugging Face
    /// does to "the first" piece: it is the one whose original offset is 0, which a normalizer may move.
    void apply(std::string& text, std::size_t& lead);
    void apply(std::string& text)
    {
        std::size_t lead = 0;
        apply(text, lead);
    }

  private:
    void apply_step(std::size_t step, std::string& text, std::size_t& lead);
    void apply_form(NormalForm form, std::string& text, std::size_t& lead);

    const std::vector<NormalizerStep>& steps_;
    std::vector<std::optional<RegexMatcher>> matchers_;
    std::vector<RegexMatcher::Span> spans_;
    std::string buffer_;
};

}  // namespace plimsoll
