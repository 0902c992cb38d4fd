#include "io/tokenizer/sentencepiece_tokenizer.hpp"

#include <unordered_map>

#include "base/digest.hpp"
#include "base/error.hpp"
#include "io/file.hpp"
#include "io/tokenizer/added_tokens.hpp"
#include "io/tokenizer/sentencepiece_normalizer.hpp"

namespace plimsoll
{

namespace
{

constexpr std::string_view spm_space = "\xE2\x96\x81";

/// All that is read from the file, shared by the encoders.
struct SpmDefinition
{
    SentencepieceModel model;
    SubwordModel subwords;
    DoubleArray user_defined;
    AddedTokenMatcher specials;
    SpecialInText special_in_text = SpecialInText::text;
    std::string name;
};

class SpmEncoder final : public TokenEncoder
{
  public:
    explicit SpmEncoder(const SpmDefinition& definition)
        : definition_(definition),
          normalizer_(definition.model.rules, definition.user_defined),
          subwords_(definition.subwords)
    {
    }

    void encode(std::string_view text, std::vector<std::uint32_t>& ids) override
    {
        parts_.clear();
        counts_.special_in_text += definition_.specials.split(text, definition_.special_in_text, parts_);
        for (const AddedPart& part : parts_)
        {
            if (part.id >= 0) { ids.push_back(static_cast<std::uint32_t>(part.id)); }
            else { encode_text(part.text, ids); }
        }
    }

  private:
    void encode_text(std::string_view text, std::vector<std::uint32_t>& ids)
    {
        normalizer_.normalize(text, normalized_);
        subwords_.encode(normalized_, ids, counts_);
        // One huge document should not keep its memory for all that follow.
        if (normalized_.capacity() > (std::size_t{16} << 20)) { normalized_ = {}; }
    }

    const SpmDefinition& definition_;
    SentencepieceNormalizer normalizer_;
    SubwordEncoder subwords_;
    std::vector<AddedPart> parts_;
    std::string normalized_;
};

class SpmTokenizer final : public Tokenizer
{
  public:
    SpmTokenizer(std::string_view bytes, const std::string& name, const TokenizerOptions& options);

    std::string name() const override { return definition_.name; }
    std::string description() const override;
    std::int64_t vocab() const override { return static_cast<std::int64_t>(definition_.model.pieces.size()); }
    std::string fingerprint() const override { return fingerprint_; }
    std::unique_ptr<TokenEncoder> make_encoder() const override { return std::make_unique<SpmEncoder>(definition_); }
    std::optional<std::uint32_t> special_id(std::string_view content) const override;
    std::string decode(const std::uint32_t* ids, std::int64_t num) const override;

  private:
    void append_piece(std::uint32_t id, bool at_start, bool& space_dropped, std::string& text) const;

    SpmDefinition definition_;
    std::unordered_map<std::string, std::uint32_t> special_ids_;  ///< control and user-defined pieces
    std::string fingerprint_;
};

SpmTokenizer::SpmTokenizer(std::string_view bytes, const std::string& name, const TokenizerOptions& options)
{
    definition_.name = name;
    definition_.model = parse_sentencepiece_model(bytes, name);
    definition_.subwords = make_subword_model(definition_.model);
    definition_.special_in_text = options.special_in_text;
    std::vector<std::pair<std::string_view, std::int32_t>> user_defined;
    std::vector<AddedToken> specials;
    for (std::uint32_t id = 0; id < definition_.model.pieces.size(); ++id)
    {
        const SentencePiece& piece = definition_.model.pieces[id];
        const bool is_control = piece.type == SentencePiece::Type::control;
        if (!is_control && piece.type != SentencePiece::Type::user_defined) { continue; }
        special_ids_.emplace(piece.text, id);
        if (is_control)
        {
            AddedToken token;
            token.content = piece.text;
            token.id = id;
            token.special = true;
            specials.push_back(std::move(token));
        }
        else { user_defined.emplace_back(piece.text, static_cast<std::int32_t>(id)); }
    }
    definition_.user_defined = DoubleArray(std::move(user_defined));
    definition_.specials = AddedTokenMatcher(std::move(specials));
    choose_eod(options.eod, {definition_.model.eos_piece});
    fingerprint_ = sha256_hex(fmt::format("plimsoll tokenizer sentencepiece, version 1: {}", sha256_hex(bytes)));
}

std::string SpmTokenizer::description() const
{
    const char* const kinds[] = {"", "unigram", "bpe", "word", "char"};
    return fmt::format("sentencepiece {}{}", kinds[static_cast<int>(definition_.model.kind)],
                       definition_.model.byte_fallback ? ", byte fallback" : "");
}

std::optional<std::uint32_t> SpmTokenizer::special_id(std::string_view content) const
{
    const auto found = special_ids_.find(std::string(content));
    if (found == special_ids_.end()) { return std::nullopt; }
    return found->second;
}

void SpmTokenizer::append_piece(std::uint32_t id, bool at_start, bool& space_dropped, std::string& text) const
{
    const SentencepieceModel& model = definition_.model;
    if (id == model.unknown_id)
    {
        text += model.unknown_surface;
        return;
    }
    std::string_view piece = model.pieces[id].text;
    const SentencepieceRules& rules = model.rules;
    if (at_start && (rules.add_dummy_prefix || rules.remove_extra_whitespaces) && piece.substr(0, 3) == spm_space)
    {
        piece.remove_prefix(3);
        // Only one space is what was put in front, unless all of them would have been removed.
        space_dropped = !rules.remove_extra_whitespaces;
    }
    for (std::size_t found = 0; (found = piece.find(spm_space)) != std::string_view::npos;)
    {
        text.append(piece.substr(0, found)).push_back(' ');
        piece.remove_prefix(found + spm_space.size());
    }
    text.append(piece);
}

std::string SpmTokenizer::decode(const std::uint32_t* ids, std::int64_t num) const
{
    const SentencepieceModel& model = definition_.model;
    std::string text;
    bool at_start = true, space_dropped = false;
    for (std::int64_t i = 0; i < num; ++i)
    {
        if (ids[i] >= model.pieces.size()) { continue; }
        const SentencePiece& piece = model.pieces[ids[i]];
        if (piece.type == SentencePiece::Type::byte)
        {
            text.push_back(static_cast<char>(std::stoi(piece.text.substr(3, 2), nullptr, 16)));
            continue;
        }
        if (space_dropped || !text.empty()) { at_start = false; }
        space_dropped = false;
        if (piece.type != SentencePiece::Type::control) { append_piece(ids[i], at_start, space_dropped, text); }
    }
    if (!model.has_denormalizer) { return text; }
    std::string denormalized;
    SentencepieceNormalizer(model.denormalizer, DoubleArray()).normalize(text, denormalized);
    return denormalized;
}

}  // namespace

std::unique_ptr<Tokenizer> make_sentencepiece_model(std::string_view bytes, const std::string& name,
                                                    const TokenizerOptions& options)
{
    return std::make_unique<SpmTokenizer>(bytes, name, options);
}

std::unique_ptr<Tokenizer> read_sentencepiece_model(const std::string& path, const TokenizerOptions& options)
{
    const std::size_t slash = path.rfind('/');
    return make_sentencepiece_model(read_text_file(path), slash == std::string::npos ? path : path.substr(slash + 1),
                                    options);
}

}  // namespace plimsoll
