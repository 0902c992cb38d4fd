#pragma once
/// How text is cut into pieces before merging. Almost every byte-level tokenizer uses one of a few patterns, which differ in a handful
/// of choices: these choices as data, and the patterns' texts that are known to mean them.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "io/tokenizer/unicode.hpp"

namespace plimsoll
{

/// 's 't 're 've 'm 'll 'd.
enum class Contractions
{
    none,
    ascii,     ///< a piece of their own, lower case only
    caseless,  ///< same in any case; the long s, U+017F, is an s
    suffix,    ///< caseless, part of the word before
};

enum class PunctTail
{
    none,
    crlf,
    crlf_slash
};

struct SplitRules
{
    std::string_view name;
    Contractions contractions = Contractions::none;
    /// Before a word: any character but CR, LF, letters and numbers; else only a space, which then may stand before numbers too.
    bool any_prefix = true;
    int digits = 3;           ///< numbers go in groups of as many, 0: in runs, also behind a space
    bool case_aware = false;  ///< "fooBar" is two words
    bool marks_join = false;  ///< marks are part of words
    bool marks_punct = true;  ///< marks may stand in runs of punctuation
    bool han_apart = false;   ///< Han characters are words of their own
    PunctTail punct_tail = PunctTail::crlf;
    bool newlines = true;    ///< \s*[\r\n]+
    bool blank_end = false;  ///< \s++$: blank to the end is one piece

    ClassSet letters() const { return marks_join ? letter_set | mark_set : letter_set; }
    ClassSet punct() const { return marks_punct ? not_space_letter_number : not_space_letter_number & ~mark_set; }
};

constexpr int any_digits = 1 << 30;

/// The text by which a tokenizer.json asks for a family's rules: gpt2, cl100k (as HF's conversions have it: llama3's), llama3,
/// qwen2, qwen3.5, o200k, tekken. @pre one of these
std::string_view pattern_text(std::string_view name);

/// By name: gpt2, cl100k, o200k, llama3, qwen2, qwen3.5, tekken, kimi, megatron-v1.
const SplitRules* find_split_rules(std::string_view name);

/// The rules that a pattern's text is known to mean in a tokenizer.json. HF's engine, Oniguruma, reads \p{N}{1,3}+ as a repeated group
/// where others see a possessive one, so that cl100k's own text means runs of digits there.
const SplitRules* recognise_pattern(std::string_view pattern);

/// Names for messages: "gpt2, cl100k, ...".
std::string split_rule_names();

/// The three patterns of DeepSeek-V3, in order.
struct DeepseekPatterns
{
    std::string numbers;
    std::string cjk;
    std::string words;
};
const DeepseekPatterns& deepseek_patterns();

}  // namespace plimsoll
