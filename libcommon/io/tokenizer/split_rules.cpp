#include "io/tokenizer/split_rules.hpp"

#include <array>
#include <utility>

#include "base/error.hpp"

namespace plimsoll
{

namespace
{

// Positions of SplitRules::name and so on would be unreadable; each differs from the default in what it names.
constexpr std::array<SplitRules, 10> known_rules = {{
    {.name = "gpt2",
     .contractions = Contractions::ascii,
     .any_prefix = false,
     .digits = 0,
     .punct_tail = PunctTail::none,
     .newlines = false},
    {.name = "cl100k", .contractions = Contractions::caseless, .blank_end = true},
    {.name = "o200k",
     .contractions = Contractions::suffix,
     .case_aware = true,
     .marks_join = true,
     .punct_tail = PunctTail::crlf_slash},
    {.name = "llama3", .contractions = Contractions::caseless},
    {.name = "qwen2", .contractions = Contractions::caseless, .digits = 1},
    {.name = "qwen3.5", .contractions = Contractions::caseless, .digits = 1, .marks_join = true, .marks_punct = false},
    {.name = "tekken", .digits = 1, .case_aware = true, .marks_join = true, .punct_tail = PunctTail::crlf_slash},
    {.name = "kimi", .contractions = Contractions::suffix, .case_aware = true, .marks_join = true, .han_apart = true},
    {.name = "megatron-v1", .digits = 1},
    {.name = "cl100k-oniguruma", .contractions = Contractions::caseless, .digits = any_digits, .blank_end = true},
}};

// What stands between the quotes is what the files hold, character by character.
constexpr std::array<std::pair<std::string_view, std::string_view>, 12> known_patterns = {{
    {"gpt2", R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {"gpt2", R"('(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s)"},
    {"gpt2", R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"},
    {"cl100k-oniguruma",
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s)"},
    {"llama3",
     R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"},
    {"llama3",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"qwen2",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"qwen3.5",
     R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"o200k",
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"tekken",
     R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"kimi",
     R"([\p{Han}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]+[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"},
    {"megatron-v1", R"([^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)"},
}};

}  // namespace

const SplitRules* find_split_rules(std::string_view name)
{
    for (const SplitRules& rules : known_rules)
    {
        if (rules.name == name) { return &rules; }
    }
    return nullptr;
}

const SplitRules* recognise_pattern(std::string_view pattern)
{
    for (const auto& [name, text] : known_patterns)
    {
        if (text == pattern) { return find_split_rules(name); }
    }
    return nullptr;
}

std::string_view pattern_text(std::string_view name)
{
    // cl100k's own text means something else to HF's engine; its conversions use the first of the two of llama3.
    std::string_view found;
    for (const auto& [known, text] : known_patterns)
    {
        if (known == (name == "cl100k" ? "llama3" : name)) { found = text; }
        if (!found.empty() && name == "cl100k") { break; }
    }
    ENSURE(!found.empty());
    return found;
}

std::string split_rule_names()
{
    std::string names;
    for (const SplitRules& rules : known_rules) { names += (names.empty() ? "" : ", ") + std::string(rules.name); }
    return names;
}

const DeepseekPatterns& deepseek_patterns()
{
    static const DeepseekPatterns patterns = {
        R"(\p{N}{1,3})",
        "[\xE4\xB8\x80-\xE9\xBE\xA5\xE3\x81\x80-\xE3\x82\x9F\xE3\x82\xA0-\xE3\x83\xBF]+",
        "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
        "?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
    };
    return patterns;
}

}  // namespace plimsoll
