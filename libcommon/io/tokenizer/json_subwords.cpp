#include "io/tokenizer/json_subwords.hpp"

#include <algorithm>
#include <cmath>

#include "base/digest.hpp"
#include "base/error.hpp"
#include "io/tokenizer/added_tokens.hpp"
#include "io/tokenizer/json_normalizer.hpp"
#include "io/tokenizer/json_pre_tokenizer.hpp"
#include "io/tokenizer/subword_model.hpp"

namespace plimsoll
{

namespace
{

using Json = nlohmann::json;
constexpr std::string_view json_space = "\xE2\x96\x81";

void replace_all(std::string& text, const std::string& from, const std::string& to)
{
    if (from.empty() || text.find(from) == std::string::npos) { return; }
    std::string out;
    std::size_t at = 0;
    for (std::size_t found = 0; (found = text.find(from, at)) != std::string::npos; at = found + from.size())
    {
        out.append(text, at, found - at).append(to);
    }
    text = out.append(text, at);
}

using JsonIds = std::unordered_map<std::string, std::uint32_t>;

void find_byte_ids(const JsonIds& ids, const TokenizerJson& json, SubwordModel& model)
{
    if (!json.model.byte_fallback) { return; }
    int num = 0;
    for (unsigned byte = 0; byte < 256; ++byte)
    {
        const auto found = ids.find(fmt::format("<0x{:02X}>", byte));
        if (found == ids.end()) { continue; }
        model.byte_ids[byte] = found->second;
        ++num;
    }
    VALIDATE(num == 0 || num == 256, FormatError, "{}: byte_fallback with {} of the 256 byte tokens is not supported",
             json.path, num);
    model.byte_fallback = num == 256;
}

SubwordModel bpe_of_json(const TokenizerJson& json)
{
    const TokenizerModel& file = json.model;
    VALIDATE(!file.has_dropout && file.continuing_subword_prefix.empty() && file.end_of_word_suffix.empty(),
             FormatError, "{}: dropout, prefixes and suffixes of a bpe over characters are not supported", json.path);
    SubwordModel model;
    JsonIds ids(file.vocab.begin(), file.vocab.end());
    std::vector<std::string_view> texts;
    for (const auto& [text, id] : file.vocab)
    {
        if (id >= model.ids.size())
        {
            model.ids.resize(id + 1, SubwordModel::no_id);
            texts.resize(id + 1);
        }
        model.ids[id] = id;
        texts[id] = text;
        const Utf8Step step = text.empty() ? Utf8Step{} : utf8_step(text, 0);
        if (!text.empty() && step.bytes == text.size()) { model.characters.set(step.code_point, id); }
    }
    find_byte_ids(ids, json, model);
    model.bytes_merge = model.byte_fallback;
    if (file.unk_token)
    {
        const auto found = ids.find(*file.unk_token);
        if (found != ids.end()) { model.unknown_id = found->second; }
    }
    VALIDATE(model.byte_fallback || model.unknown_id != SubwordModel::no_id, FormatError,
             "{}: a bpe over characters without unk_token and byte_fallback is not supported", json.path);
    model.fuse_unknown = file.fuse_unk;
    model.merges = MergeTable(file.merges.size());
    std::vector<std::string_view> merged;
    const auto is_byte = [&](std::uint32_t id) {
        return model.byte_fallback &&
               std::find(model.byte_ids.begin(), model.byte_ids.end(), id) != model.byte_ids.end();
    };
    for (std::uint32_t rank = 0; rank < file.merges.size(); ++rank)
    {
        const TokenizerMerge& merge = file.merges[rank];
        model.merges.add(merge.left, merge.right, {merge.merged, rank});
        merged.push_back(texts[merge.merged]);
        if (is_byte(merge.left) || is_byte(merge.right)) { model.can_cut = false; }
    }
    model.cuts = CutPairs(merged);
    return model;
}

SubwordModel unigram_of_json(const TokenizerJson& json)
{
    const TokenizerModel& file = json.model;
    VALIDATE(file.unk_id && *file.unk_id >= 0 && *file.unk_id < static_cast<std::int64_t>(file.pieces.size()),
             FormatError, "{}: a unigram without unk_id is not supported", json.path);
    SubwordModel model;
    model.kind = SubwordModel::Kind::unigram;
    model.double_sums = true;
    model.unknown_id = static_cast<std::uint32_t>(*file.unk_id);
    JsonIds ids;
    double lowest = INFINITY;
    for (std::uint32_t id = 0; id < file.pieces.size(); ++id)
    {
        const auto& [text, score] = file.pieces[id];
        VALIDATE(std::isfinite(score), FormatError, "{}: score of piece {} is not a finite number", json.path, id);
        if (!text.empty()) { ids[text] = id; }
        lowest = std::min(lowest, score);
        model.unigram.scores.push_back(score);
    }
    find_byte_ids(ids, json, model);
    // A special token is no piece of a text: where it is meant, it is found before.
    for (const AddedToken& token : json.added_tokens)
    {
        if (token.special) { ids.erase(token.content); }
    }
    UnigramTable& table = model.unigram;
    table.unknown_id = model.unknown_id;
    table.unknown_score = lowest - 10.0;
    table.largest_score = std::abs(table.unknown_score);
    std::vector<std::pair<std::string_view, std::int32_t>> keys;
    std::vector<std::string_view> texts;
    for (const auto& [text, id] : ids)
    {
        keys.emplace_back(text, static_cast<std::int32_t>(id));
        texts.push_back(text);
        table.largest_score = std::max(table.largest_score, std::abs(table.scores[id]));
    }
    table.trie = DoubleArray(std::move(keys));
    model.cuts = CutPairs(texts);
    return model;
}

/// Shared by the encoders.
struct JsonDefinition
{
    std::vector<NormalizerStep> normalizer;
    std::vector<PreTokenizerStep> pre_tokenizer;
    SubwordModel model;
    JsonIds whole_words;  ///< with ignore_merges: a piece that is a token is that token, however it would merge
    AddedTokenMatcher raw, normalized;
    SpecialInText special_in_text = SpecialInText::text;
};

class JsonSubwordEncoder final : public TokenEncoder
{
  public:
    explicit JsonSubwordEncoder(const JsonDefinition& definition)
        : definition_(definition),
          normalizer_(definition.normalizer),
          pre_tokenizer_(definition.pre_tokenizer),
          subwords_(definition.model)
    {
    }

    void encode(std::string_view text, std::vector<std::uint32_t>& ids) override
    {
        std::vector<AddedPart> parts;
        counts_.special_in_text += definition_.raw.split(text, definition_.special_in_text, parts);
        for (const AddedPart& part : parts)
        {
            if (part.id >= 0) { ids.push_back(static_cast<std::uint32_t>(part.id)); }
            else { encode_part(part.text, part.text.data() == text.data(), ids); }
        }
    }

  private:
    void encode_part(std::string_view text, bool first, std::vector<std::uint32_t>& ids)
    {
        std::string part(text);
        std::size_t lead = first && !text.empty() ? utf8_step(text, 0).bytes : 0;
        normalizer_.apply(part, lead);
        // A normalizer may take new characters for the part's first ones.
        if (!first) { lead = 0; }
        std::vector<AddedPart> parts;
        counts_.special_in_text += definition_.normalized.split(part, definition_.special_in_text, parts);
        for (const AddedPart& inner : parts)
        {
            if (inner.id >= 0)
            {
                ids.push_back(static_cast<std::uint32_t>(inner.id));
                continue;
            }
            const auto at = static_cast<std::size_t>(inner.text.data() - part.data());
            pre_tokenizer_.split(inner.text, lead - std::min(lead, at),
                                 [&](std::string_view piece) { encode_piece(piece, ids); });
        }
    }

    void encode_piece(std::string_view piece, std::vector<std::uint32_t>& ids)
    {
        if (!definition_.whole_words.empty())
        {
            const auto found = definition_.whole_words.find(std::string(piece));
            if (found != definition_.whole_words.end()) { return ids.push_back(found->second); }
        }
        subwords_.encode(piece, ids, counts_);
    }

    const JsonDefinition& definition_;
    JsonNormalizer normalizer_;
    JsonPreTokenizer pre_tokenizer_;
    SubwordEncoder subwords_;
};

class JsonSubwordTokenizer final : public Tokenizer
{
  public:
    JsonSubwordTokenizer(const TokenizerJson& json, const TokenizerOptions& options);

    std::string name() const override { return name_; }
    std::string description() const override
    {
        return definition_.model.kind == SubwordModel::Kind::unigram ? "unigram over characters"
                                                                     : "bpe over characters";
    }
    std::int64_t vocab() const override { return static_cast<std::int64_t>(texts_.size()); }
    std::string fingerprint() const override { return fingerprint_; }
    std::unique_ptr<TokenEncoder> make_encoder() const override
    {
        return std::make_unique<JsonSubwordEncoder>(definition_);
    }
    std::optional<std::uint32_t> special_id(std::string_view content) const override
    {
        for (const AddedToken& token : added_)
        {
            if (token.content == content) { return token.id; }
        }
        return std::nullopt;
    }
    std::string decode(const std::uint32_t* ids, std::int64_t num) const override;

  private:
    void add_tokens(const TokenizerJson& json);

    JsonDefinition definition_;
    std::string name_, fingerprint_;
    std::vector<AddedToken> added_;
    std::vector<std::string> texts_;   ///< by id; of specials empty
    std::vector<std::int16_t> bytes_;  ///< by id; -1: not a byte token
    bool strip_space_ = false;
};

JsonSubwordTokenizer::JsonSubwordTokenizer(const TokenizerJson& json, const TokenizerOptions& options)
{
    name_ = json.path.substr(json.path.rfind('/') + 1);
    VALIDATE(json.model.type == "BPE" || json.model.type == "Unigram", FormatError, "{}: model {} is not supported",
             json.path, json.model.type);
    definition_.normalizer = read_normalizer(json.normalizer, json.path);
    const std::vector<NormalizerStep>& steps = definition_.normalizer;
    const bool no_spaces = !steps.empty() && steps.back().kind == NormalizerStep::Kind::replace &&
                           steps.back().from == " " && steps.back().to.find(' ') == std::string::npos;
    definition_.pre_tokenizer = read_pre_tokenizer(json.pre_tokenizer, no_spaces, json.path);
    definition_.model = json.model.type == "BPE" ? bpe_of_json(json) : unigram_of_json(json);
    if (json.model.ignore_merges)
    {
        definition_.whole_words = JsonIds(json.model.vocab.begin(), json.model.vocab.end());
    }
    definition_.special_in_text = options.special_in_text;
    add_tokens(json);
    choose_eod(options.eod, usual_document_ends());
    const std::string decoder = json.decoder.dump();
    strip_space_ = decoder.find("\"Strip\"") != std::string::npos ||
                   std::any_of(definition_.pre_tokenizer.begin(), definition_.pre_tokenizer.end(),
                               [](const PreTokenizerStep& step) {
                                   return step.kind == PreTokenizerStep::Kind::metaspace &&
                                          step.prepend != PreTokenizerStep::Prepend::never;
                               });
    fingerprint_ = sha256_hex(fmt::format("plimsoll tokenizer json subwords, version 1: {}", json.sha256));
}

void JsonSubwordTokenizer::add_tokens(const TokenizerJson& json)
{
    JsonIds ids(json.model.vocab.begin(), json.model.vocab.end());
    for (std::uint32_t id = 0; id < json.model.pieces.size(); ++id) { ids[json.model.pieces[id].first] = id; }
    const auto keep = [this](std::uint32_t id, const std::string& text)
    {
        if (id >= texts_.size()) { texts_.resize(id + 1); }
        texts_[id] = text;
    };
    for (const auto& [text, id] : ids) { keep(id, text); }
    added_ = json.added_tokens;
    assign_added_ids(added_, static_cast<std::int64_t>(ids.size()),
                     [&](const std::string& text) -> std::optional<std::uint32_t>
                     {
                         const auto found = ids.find(text);
                         if (found == ids.end()) { return std::nullopt; }
                         return found->second;
                     });
    std::vector<AddedToken> raw, normalized;
    JsonNormalizer normalizer(definition_.normalizer);
    for (const AddedToken& token : added_)
    {
        keep(token.id, token.special ? "" : token.content);
        (token.normalized ? normalized : raw).push_back(token);
        if (token.normalized) { normalizer.apply(normalized.back().content); }
    }
    definition_.raw = AddedTokenMatcher(raw);
    definition_.normalized = AddedTokenMatcher(normalized);
    bytes_.assign(texts_.size(), -1);
    for (std::int16_t byte = 0; byte < 256 && definition_.model.byte_fallback; ++byte)
    {
        bytes_[definition_.model.byte_ids[static_cast<std::size_t>(byte)]] = byte;
    }
}

std::string JsonSubwordTokenizer::decode(const std::uint32_t* ids, std::int64_t num) const
{
    std::string text;
    for (std::int64_t i = 0; i < num; ++i)
    {
        if (ids[i] >= texts_.size()) { continue; }
        if (bytes_[ids[i]] >= 0) { text.push_back(static_cast<char>(bytes_[ids[i]])); }
        else { text += texts_[ids[i]]; }
    }
    replace_all(text, std::string(json_space), " ");
    if (strip_space_ && !text.empty() && text[0] == ' ') { text.erase(0, 1); }
    return text;
}

}  // namespace

std::unique_ptr<Tokenizer> make_sentencepiece_like(const TokenizerJson& json, const TokenizerOptions& options)
{
    try
    {
        return std::make_unique<JsonSubwordTokenizer>(json, options);
    }
    catch (const nlohmann::json::exception& error)
    {
        throw FormatError(fmt::format("{}: broken ({})", json.path, error.what()));
    }
}

}  // namespace plimsoll
