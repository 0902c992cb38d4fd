#include "io/tokenizer/rank_specials.hpp"

#include <array>

#include "base/error.hpp"

namespace plimsoll
{

namespace
{

struct KnownRanks
{
    std::string_view name;
    std::string_view rules;
    std::string_view sha256;
};

// Digests as published with tiktoken. p50k_edit and o200k_harmony are other specials over the files above them.
constexpr std::array<KnownRanks, 8> known_ranks = {{
    {"r50k_base", "gpt2", "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"},
    {"p50k_base", "gpt2", "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069"},
    {"p50k_edit", "gpt2", ""},
    {"cl100k_base", "cl100k", "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"},
    {"o200k_base", "o200k", "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"},
    {"o200k_harmony", "o200k", ""},
    {"llama3", "llama3", ""},
    {"gpt2", "gpt2", ""},
}};

constexpr std::size_t llama3_ranks = 128000;

AddedToken special(std::string content, std::uint32_t id)
{
    AddedToken token;
    token.content = std::move(content);
    token.id = id;
    token.normalized = false;
    token.special = true;
    return token;
}

std::vector<AddedToken> llama3_specials(std::uint32_t first)
{
    std::vector<std::string> names = {"<|begin_of_text|>", "<|end_of_text|>"};
    for (int i = 0; i < 4; ++i) { names.push_back(fmt::format("<|reserved_special_token_{}|>", i)); }
    for (const char* name : {"<|start_header_id|>", "<|end_header_id|>", "<|reserved_special_token_4|>", "<|eot_id|>"})
    {
        names.emplace_back(name);
    }
    for (int i = 5; i < 251; ++i) { names.push_back(fmt::format("<|reserved_special_token_{}|>", i)); }
    std::vector<AddedToken> result;
    for (std::string& name : names) { result.push_back(special(std::move(name), first++)); }
    return result;
}

std::vector<AddedToken> harmony_specials()
{
    std::vector<AddedToken> result = {special("<|startoftext|>", 199998), special("<|endoftext|>", 199999)};
    for (std::uint32_t id = 200000; id < 201088; ++id)
    {
        static const std::array<std::pair<std::uint32_t, std::string_view>, 8> named = {{{200002, "<|return|>"},
                                                                                         {200003, "<|constrain|>"},
                                                                                         {200005, "<|channel|>"},
                                                                                         {200006, "<|start|>"},
                                                                                         {200007, "<|end|>"},
                                                                                         {200008, "<|message|>"},
                                                                                         {200012, "<|call|>"},
                                                                                         {200018, "<|endofprompt|>"}}};
        std::string content = fmt::format("<|reserved_{}|>", id);
        for (const auto& [known, name] : named)
        {
            if (known == id) { content = name; }
        }
        result.push_back(special(std::move(content), id));
    }
    return result;
}

std::vector<AddedToken> specials_of(std::string_view name, std::uint32_t num_ranks)
{
    if (name == "cl100k_base")
    {
        return {special("<|endoftext|>", 100257), special("<|fim_prefix|>", 100258), special("<|fim_middle|>", 100259),
                special("<|fim_suffix|>", 100260), special("<|endofprompt|>", 100276)};
    }
    if (name == "o200k_base") { return {special("<|endoftext|>", 199999), special("<|endofprompt|>", 200018)}; }
    if (name == "o200k_harmony") { return harmony_specials(); }
    if (name == "p50k_base") { return {special("<|endoftext|>", 50256)}; }
    if (name == "p50k_edit")
    {
        return {special("<|endoftext|>", 50256), special("<|fim_prefix|>", 50281), special("<|fim_middle|>", 50282),
                special("<|fim_suffix|>", 50283)};
    }
    if (name == "llama3" && num_ranks == llama3_ranks) { return llama3_specials(num_ranks); }
    return {special("<|endoftext|>", num_ranks)};
}

const KnownRanks* find_known(std::string_view name)
{
    for (const KnownRanks& known : known_ranks)
    {
        if (known.name == name) { return &known; }
    }
    return nullptr;
}

const KnownRanks* recognise_ranks(const std::string& file_name, const RankFile& ranks)
{
    if (const KnownRanks* known = find_known(file_name.substr(0, file_name.find('.')))) { return known; }
    for (const KnownRanks& known : known_ranks)
    {
        if (known.sha256 == ranks.sha256) { return &known; }
    }
    // Meta's tokenizer.model.
    return ranks.tokens.size() == llama3_ranks ? find_known("llama3") : nullptr;
}

}  // namespace

RankSpecials find_rank_specials(const std::string& file_name, const std::string& option, const RankFile& ranks)
{
    const KnownRanks* known = option.empty() ? recognise_ranks(file_name, ranks) : find_known(option);
    const SplitRules* rules = known != nullptr ? find_split_rules(known->rules) : find_split_rules(option);
    const auto num_ranks = static_cast<std::uint32_t>(ranks.tokens.size());
    VALIDATE(rules != nullptr || !option.empty(), ConfigError,
             "{}: a rank file does not say its pattern, and neither its name nor its content is a known one. say it: "
             "{}:pattern=NAME "
             "with one of {}",
             file_name, file_name, split_rule_names());
    VALIDATE(rules != nullptr, ConfigError,
             "unknown pattern '{}'. known: {}, cl100k_base, o200k_base, o200k_harmony, r50k_base, p50k_base, "
             "p50k_edit",
             option, split_rule_names());
    RankSpecials result{rules, specials_of(known != nullptr ? known->name : "", num_ranks)};
    for (const AddedToken& token : result.specials)
    {
        VALIDATE(token.id >= num_ranks || ranks.tokens[token.id].empty(), FormatError,
                 "{}: rank {} is taken, but {} has '{}' there", file_name, token.id, known->name, token.content);
    }
    return result;
}

}  // namespace plimsoll
