#define PCRE2_CODE_UNIT_WIDTH 8
#include "io/tokenizer/regex_split.hpp"

#include <pcre2.h>

#include "base/error.hpp"

namespace plimsoll
{

namespace
{

constexpr std::uint32_t match_limit = 10'000'000;
constexpr std::uint32_t heap_limit_kib = 256 * 1024;
constexpr std::size_t jit_stack_first = 64 * 1024;
constexpr std::size_t jit_stack_most = std::size_t{64} * 1024 * 1024;

std::string pcre_message(int code)
{
    PCRE2_UCHAR text[256];
    pcre2_get_error_message(code, text, sizeof text);
    return reinterpret_cast<const char*>(text);
}

}  // namespace

std::string regex_version()
{
    char version[64] = "";
    char unicode[64] = "";
    pcre2_config(PCRE2_CONFIG_VERSION, version);
    pcre2_config(PCRE2_CONFIG_UNICODE_VERSION, unicode);
    const std::string text = version;
    return text.substr(0, text.find(' ')) + ", unicode " + unicode;
}

struct RegexPattern::Impl
{
    std::string pattern;
    pcre2_code* code = nullptr;
};

RegexPattern::RegexPattern(const std::string& pattern, bool is_literal) : impl_(std::make_unique<Impl>())
{
    impl_->pattern = pattern;
    int error = 0;
    PCRE2_SIZE offset = 0;
    // As Oniguruma reads it in HF: ^ and $ at each line, and only LF ends one.
    pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
    pcre2_set_newline(context, PCRE2_NEWLINE_LF);
    const std::uint32_t options =
        PCRE2_UTF | PCRE2_NO_UTF_CHECK | (is_literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_MULTILINE);
    impl_->code =
        pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options, &error, &offset, context);
    pcre2_compile_context_free(context);
    VALIDATE(impl_->code != nullptr, FormatError, "split pattern '{}' cannot be used ({} at byte {})", pattern,
             pcre_message(error), offset);
    // Without JIT (a processor that has none) it is slower, not different.
    pcre2_jit_compile(impl_->code, PCRE2_JIT_COMPLETE);
}

RegexPattern::~RegexPattern() { pcre2_code_free(impl_->code); }

bool RegexPattern::matches_empty() const
{
    std::uint32_t empty = 0;
    pcre2_pattern_info(impl_->code, PCRE2_INFO_MATCHEMPTY, &empty);
    return empty != 0;
}

struct RegexMatcher::Impl
{
    const RegexPattern::Impl* pattern = nullptr;
    pcre2_match_context* context = nullptr;
    pcre2_match_data* data = nullptr;
    pcre2_jit_stack* stack = nullptr;

    ~Impl()
    {
        pcre2_match_data_free(data);
        pcre2_match_context_free(context);
        pcre2_jit_stack_free(stack);
    }
};

RegexMatcher::RegexMatcher(const RegexPattern& pattern) : impl_(std::make_unique<Impl>())
{
    impl_->pattern = pattern.impl_.get();
    impl_->context = pcre2_match_context_create(nullptr);
    impl_->data = pcre2_match_data_create_from_pattern(impl_->pattern->code, nullptr);
    impl_->stack = pcre2_jit_stack_create(jit_stack_first, jit_stack_most, nullptr);
    VALIDATE(impl_->context != nullptr && impl_->data != nullptr && impl_->stack != nullptr, OutOfMemory,
             "no memory for the matcher of a split pattern");
    pcre2_set_match_limit(impl_->context, match_limit);
    pcre2_set_heap_limit(impl_->context, heap_limit_kib);
    pcre2_jit_stack_assign(impl_->context, nullptr, impl_->stack);
}

RegexMatcher::~RegexMatcher() = default;
RegexMatcher::RegexMatcher(RegexMatcher&& other) noexcept = default;

void RegexMatcher::split(std::string_view text, std::vector<Span>& spans)
{
    std::size_t done = 0;
    std::size_t from = 0;
    while (from < text.size())
    {
        const int found = pcre2_match(impl_->pattern->code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                      from, PCRE2_NO_UTF_CHECK, impl_->data, impl_->context);
        if (found == PCRE2_ERROR_NOMATCH) { break; }
        VALIDATE(found > 0, FormatError,
                 "split pattern '{}' gave up at byte {} of a text of {} ({}). a simpler pattern may do",
                 impl_->pattern->pattern, from, text.size(), pcre_message(found));
        const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(impl_->data);
        if (ends[0] >= ends[1])
        {
            // Goes on behind the next character.
            from = ends[1] + 1;
            while (from < text.size() && (static_cast<unsigned char>(text[from]) & 0xC0) == 0x80) { ++from; }
            continue;
        }
        if (done < ends[0]) { spans.push_back({done, ends[0], false}); }
        spans.push_back({ends[0], ends[1], true});
        done = from = ends[1];
    }
    if (done < text.size()) { spans.push_back({done, text.size(), false}); }
}

}  // namespace plimsoll
