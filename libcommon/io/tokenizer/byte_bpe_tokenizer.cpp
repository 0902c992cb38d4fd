#include "io/tokenizer/byte_bpe_tokenizer.hpp"

#include <algorithm>
#include <unordered_map>

#include "base/digest.hpp"
#include "base/error.hpp"
#include "io/tokenizer/byte_bpe_encoder.hpp"
#include "io/tokenizer/byte_letters.hpp"
#include "io/tokenizer/rank_specials.hpp"
#include "io/tokenizer/unicode_normalize.hpp"

namespace plimsoll
{

namespace
{

std::string file_name_of(const std::string& path) { return path.substr(path.rfind('/') + 1); }

// Bytes that a token's characters stand for; false where one stands for none.
bool to_bytes(std::string_view token, std::string& bytes)
{
    bytes.clear();
    for (std::size_t i = 0; i < token.size();)
    {
        const CodePoint c = decode_utf8(token.data() + i);
        const int byte = byte_of_letter(c.value);
        if (byte < 0) { return false; }
        bytes.push_back(static_cast<char>(byte));
        i += c.bytes;
    }
    return true;
}

class ByteBpeTokenizer final : public Tokenizer
{
  public:
    ByteBpeTokenizer(std::string path, std::unique_ptr<ByteBpe> bpe, std::vector<AddedToken> added,
                     const std::string& digest, const TokenizerOptions& options);

    std::string name() const override { return file_name_of(path_); }
    std::string description() const override { return description_; }
    std::int64_t vocab() const override { return vocab_; }
    std::string fingerprint() const override { return fingerprint_; }
    std::unique_ptr<TokenEncoder> make_encoder() const override { return std::make_unique<ByteBpeEncoder>(*bpe_); }
    std::optional<std::uint32_t> special_id(std::string_view content) const override;
    std::string decode(const std::uint32_t* ids, std::int64_t num) const override;

    /// Tokens that no text can spell, as they are written.
    void set_unspelled(std::unordered_map<std::uint32_t, std::string> tokens) { unspelled_ = std::move(tokens); }

  private:
    std::string path_;
    std::unique_ptr<ByteBpe> bpe_;
    std::vector<AddedToken> added_;
    std::unordered_map<std::uint32_t, std::size_t> added_by_id_;
    std::unordered_map<std::uint32_t, std::string> unspelled_;
    std::string description_;
    std::string fingerprint_;
    std::int64_t vocab_ = 0;
};

ByteBpeTokenizer::ByteBpeTokenizer(std::string path, std::unique_ptr<ByteBpe> bpe, std::vector<AddedToken> added,
                                   const std::string& digest, const TokenizerOptions& options)
    : path_(std::move(path)),
      bpe_(std::move(bpe)),
      added_(std::move(added))
{
    vocab_ = static_cast<std::int64_t>(bpe_->tables.definition().tokens.size());
    std::vector<AddedToken> raw;
    std::vector<AddedToken> normalized;
    for (std::size_t i = 0; i < added_.size(); ++i)
    {
        AddedToken token = added_[i];
        vocab_ = std::max(vocab_, static_cast<std::int64_t>(token.id) + 1);
        added_by_id_[token.id] = i;
        if (token.normalized && bpe_->nfc)
        {
            std::string content;
            append_normalized(token.content, NormalForm::nfc, content);
            token.content = std::move(content);
        }
        (token.normalized ? normalized : raw).push_back(std::move(token));
    }
    bpe_->raw = AddedTokenMatcher(std::move(raw));
    bpe_->normalized = AddedTokenMatcher(std::move(normalized));
    bpe_->special_in_text = options.special_in_text;
    choose_eod(options.eod, usual_document_ends());
    description_ = fmt::format("byte-level bpe, {}{}, unicode {}", bpe_->plan.description, bpe_->nfc ? ", nfc" : "",
                               unicode_version());
    fingerprint_ = sha256_hex(fmt::format("plimsoll byte-level bpe, version 1\nunicode {}\n{}\n{}", unicode_version(),
                                          bpe_->plan.description, digest));
}

std::optional<std::uint32_t> ByteBpeTokenizer::special_id(std::string_view content) const
{
    for (const AddedToken& token : added_)
    {
        if (token.content == content) { return token.id; }
    }
    return std::nullopt;
}

std::string ByteBpeTokenizer::decode(const std::uint32_t* ids, std::int64_t num) const
{
    std::string text;
    std::string bytes;
    const std::vector<std::string>& tokens = bpe_->tables.definition().tokens;
    for (std::int64_t i = 0; i < num; ++i)
    {
        const auto added = added_by_id_.find(ids[i]);
        if (added != added_by_id_.end())
        {
            const AddedToken& token = added_[added->second];
            if (!token.special) { text += to_bytes(token.content, bytes) ? bytes : token.content; }
            continue;
        }
        if (ids[i] < tokens.size() && !tokens[ids[i]].empty())
        {
            text += tokens[ids[i]];
            continue;
        }
        const auto unspelled = unspelled_.find(ids[i]);
        if (unspelled != unspelled_.end()) { text += unspelled->second; }
    }
    return text;
}

// Only NFC, alone or in a Sequence.
bool asks_for_nfc(const nlohmann::json& normalizer)
{
    if (normalizer.is_null()) { return false; }
    const std::string type = normalizer.value("type", "");
    if (type == "NFC") { return true; }
    VALIDATE(type == "Sequence" && normalizer.contains("normalizers"), FormatError,
             "normalizer {} is not supported (of a byte-level bpe). supported: NFC", type);
    bool result = false;
    for (const nlohmann::json& inner : normalizer["normalizers"]) { result = asks_for_nfc(inner) || result; }
    return result;
}

void check_model(const TokenizerModel& model)
{
    VALIDATE(!model.has_dropout, FormatError, "model.dropout is not supported (ids would be random)");
    VALIDATE(model.continuing_subword_prefix.empty() && model.end_of_word_suffix.empty(), FormatError,
             "model.continuing_subword_prefix and end_of_word_suffix are not supported (of a byte-level bpe)");
}

BpeDefinition definition_of(TokenizerModel& model, std::unordered_map<std::uint32_t, std::string>& unspelled)
{
    BpeDefinition definition;
    definition.byte_ids.fill(-1);
    definition.whole_first = model.ignore_merges;
    definition.fuse_unk = model.fuse_unk;
    definition.merges = std::move(model.merges);
    std::uint32_t highest = 0;
    for (const auto& [token, id] : model.vocab) { highest = std::max(highest, id); }
    VALIDATE(highest <= BpeTables::max_id, FormatError, "id {} is too high for a byte-level bpe (at most {})", highest,
             BpeTables::max_id);
    definition.tokens.resize(model.vocab.empty() ? 0 : static_cast<std::size_t>(highest) + 1);
    std::string bytes;
    for (auto& [token, id] : model.vocab)
    {
        if (model.unk_token && *model.unk_token == token) { definition.unk_id = id; }
        if (!to_bytes(token, bytes))
        {
            unspelled[id] = std::move(token);
            continue;
        }
        if (bytes.size() == 1) { definition.byte_ids[static_cast<unsigned char>(bytes[0])] = id; }
        definition.tokens[id] = bytes;
    }
    VALIDATE(!model.unk_token || definition.unk_id >= 0, FormatError, "model.unk_token '{}' is not in model.vocab",
             *model.unk_token);
    const bool has_all =
        std::find(definition.byte_ids.begin(), definition.byte_ids.end(), -1) == definition.byte_ids.end();
    VALIDATE(has_all || !model.byte_fallback, FormatError,
             "model.byte_fallback is not supported where bytes are missing in a byte-level vocabulary");
    return definition;
}

void number_added_tokens(TokenizerJson& json)
{
    std::unordered_map<std::string_view, std::optional<std::uint32_t>> ids;
    for (const AddedToken& token : json.added_tokens) { ids[token.content] = std::nullopt; }
    for (const auto& [token, id] : json.model.vocab)
    {
        const auto found = ids.find(token);
        if (found != ids.end()) { found->second = id; }
    }
    assign_added_ids(json.added_tokens, static_cast<std::int64_t>(json.model.vocab.size()),
                     [&](const std::string& content) { return ids.at(content); });
}

}  // namespace

bool is_byte_bpe(const TokenizerJson& json) { return json.model.type == "BPE" && is_byte_level(json.pre_tokenizer); }

std::unique_ptr<Tokenizer> make_byte_bpe(TokenizerJson json, const TokenizerOptions& options)
{
    const std::string path = json.path;
    const auto make = [&]
    {
        check_model(json.model);
        const bool nfc = asks_for_nfc(json.normalizer);
        SplitPlan plan = compile_split_plan(json.pre_tokenizer);
        number_added_tokens(json);
        std::unordered_map<std::uint32_t, std::string> unspelled;
        auto bpe = std::make_unique<ByteBpe>(definition_of(json.model, unspelled));
        bpe->plan = std::move(plan);
        bpe->nfc = nfc;
        return std::pair(std::move(bpe), std::move(unspelled));
    };
    auto [bpe, unspelled] = with_context(path, make);
    auto result =
        std::make_unique<ByteBpeTokenizer>(path, std::move(bpe), std::move(json.added_tokens), json.sha256, options);
    result->set_unspelled(std::move(unspelled));
    return result;
}

std::unique_ptr<Tokenizer> make_rank_bpe(const std::string& path, RankFile ranks, const std::string& pattern,
                                         const TokenizerOptions& options)
{
    RankSpecials specials = find_rank_specials(file_name_of(path), pattern, ranks);
    BpeDefinition definition;
    definition.by_rank = true;
    definition.whole_first = true;
    for (std::size_t id = 0; id < ranks.tokens.size(); ++id)
    {
        const std::string& token = ranks.tokens[id];
        if (token.size() == 1)
        {
            definition.byte_ids[static_cast<unsigned char>(token[0])] = static_cast<std::int64_t>(id);
        }
    }
    definition.tokens = std::move(ranks.tokens);
    auto bpe = with_context(path, [&] { return std::make_unique<ByteBpe>(std::move(definition)); });
    bpe->plan = plan_of_rules(*specials.rules);
    std::string digest = ranks.sha256;
    for (const AddedToken& token : specials.specials) { digest += fmt::format("\n{} {}", token.id, token.content); }
    return std::make_unique<ByteBpeTokenizer>(path, std::move(bpe), std::move(specials.specials), digest, options);
}

}  // namespace plimsoll
