#pragma once
/// A tokenizer.json (HF `tokenizers` 1.0) as plain data: read and checked for what every model needs, not interpreted.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace plimsoll
{

struct AddedToken
{
    std::string content;
    std::uint32_t id = 0;  ///< as the file says; what counts is assign_added_ids()
    bool single_word = false;
    bool lstrip = false;
    bool rstrip = false;
    bool normalized = true;
    bool special = false;
};

struct TokenizerMerge
{
    std::uint32_t left;
    std::uint32_t right;
    std::uint32_t merged;
};

struct TokenizerModel
{
    std::string type;  ///< "BPE", "Unigram"
    /// Tokens of a BPE in the file's order, as they are written there.
    std::vector<std::pair<std::string, std::uint32_t>> vocab;
    std::vector<TokenizerMerge> merges;                  ///< in order of rank
    std::vector<std::pair<std::string, double>> pieces;  ///< of a Unigram, with their scores
    std::optional<std::string> unk_token;                ///< BPE
    std::optional<std::int64_t> unk_id;                  ///< Unigram
    std::string continuing_subword_prefix;
    std::string end_of_word_suffix;
    bool has_dropout = false;
    bool fuse_unk = false;
    bool byte_fallback = false;
    bool ignore_merges = false;
};

struct TokenizerJson
{
    std::string path;
    std::vector<AddedToken> added_tokens;
    nlohmann::json normalizer;  ///< null where there is none; so below
    nlohmann::json pre_tokenizer;
    nlohmann::json post_processor;
    nlohmann::json decoder;
    TokenizerModel model;
    std::string sha256;  ///< of the file's bytes
};

/// @throws IoError, FormatError with the path
TokenizerJson read_tokenizer_json(const std::string& path);

/// Same from the file's text.
TokenizerJson parse_tokenizer_json(const std::string& path, const std::string& text);

/// Gives each added token the id that HF gives it: the model's where the model has the content, else the next free one. What the
/// file says is ignored there too. `find` is the model's look-up, `num_model` its number of tokens.
template<class Find>
void assign_added_ids(std::vector<AddedToken>& tokens, std::int64_t num_model, Find&& find)
{
    std::optional<std::uint32_t> highest;
    for (std::size_t i = 0; i < tokens.size(); ++i)
    {
        std::optional<std::uint32_t> id = find(tokens[i].content);
        for (std::size_t j = 0; j < i && !id; ++j)
        {
            if (tokens[j].content == tokens[i].content) { id = tokens[j].id; }
        }
        const auto size = static_cast<std::uint32_t>(num_model);
        if (!id) { id = highest && *highest >= size ? *highest + 1 : size; }
        tokens[i].id = *id;
        if (!highest || *id > *highest) { highest = id; }
    }
}

}  // namespace plimsoll
